"""A model behind HTTP: `regard serve RUN`. A page to type into, a JSON API, and limits on all that comes in.

    connection -> door -> app -> reading -> Served.read -> Worker -> Served.answer

FastAPI and uvicorn are imported by app and running, which nothing else imports before it serves.
"""
