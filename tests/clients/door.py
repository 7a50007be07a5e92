"""What the clients share: a request, an answer, and how to say that a package is missing."""

import importlib.util
import json
import sys
import urllib.error
import urllib.request
from collections import namedtuple

Answer = namedtuple("Answer", "status headers body")

# What the test that starts a client takes for "skipped".
MISSING = 77


def skip_without(package):
    if importlib.util.find_spec(package) is None:
        print(f"the Python package {package} is not installed")
        sys.exit(MISSING)


def post(url, headers, body):
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return read(answer)
    except urllib.error.HTTPError as answer:
        return read(answer)


def read(answer):
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Answer(answer.status, headers, answer.read())


def events_of(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)["events"]
