"""A Flask handler that charges an order once, however often the button is pressed."""

import os

import flask

import holdfast

app = flask.Flask(__name__)
# Before the workers are forked: each opens connections of its own.
client = holdfast.Client(os.environ.get("REDIS_URL", "redis://localhost"))
charged: set[int] = set()


@app.post("/orders/<int:order>/charge")
def charge(order):
    try:
        with client.lock(f"order:{order}", blocking_timeout=2):
            if order in charged:
                return {"order": order, "charged": "before"}
            charged.add(order)
            return {"order": order, "charged": "now"}
    except holdfast.LockNotAcquiredError:
        return {"order": order, "error": "busy, try again"}, 409
