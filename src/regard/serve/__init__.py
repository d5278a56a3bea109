"""Models behind HTTP: `regard serve RUN`. A page with a form, a JSON API, and limits on every request.

    connection -> SecurityMiddleware -> app -> BodyReader -> Endpoint.read -> Batcher -> Endpoint.answer

`server` imports FastAPI and uvicorn only when it serves: they are installed with the extra "serve".
"""
