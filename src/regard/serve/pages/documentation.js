// Draws openapi.json by Swagger UI; without a validator, which would be asked at another host.
"use strict";
SwaggerUIBundle({ url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, tryItOutEnabled: true, validatorUrl: null });
