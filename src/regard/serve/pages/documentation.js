// Draws openapi.json by Swagger UI; without a validator, which would be asked at another host.
// Links inside of the buttons of operations are left out, headings skip no level, and all parts are in landmarks.
"use strict";
const ATTRIBUTES = [
  ["h3.opblock-tag", "aria-level", "2"],
  ["h4", "aria-level", "3"],
  [".information-container", "role", "banner"],
  [".scheme-container", "role", "region"],
  [".scheme-container", "aria-label", "authorization"],
];
const drawn = new MutationObserver(() => {
  for (const [selector, name, value] of ATTRIBUTES)
    for (const element of document.querySelectorAll(`#swagger-ui ${selector}:not([${name}])`)) element.setAttribute(name, value);
});
drawn.observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
SwaggerUIBundle({ url: "openapi.json", dom_id: "#swagger-ui", deepLinking: false, tryItOutEnabled: true, validatorUrl: null });
