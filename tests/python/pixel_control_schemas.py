"""Which requests the schemas of the pixel-control contract take, by an independent validator.

    pixel_control_schemas.py own FOLDER        the files of crates/contracts/schemas/pixel-control
    pixel_control_schemas.py published FOLDER  the published texts, *.schema.json

Reads one request a line and prints 1 or 0 for each. An empty array counts as an empty object, because
the producer is PHP.
"""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator, validators
from referencing import Registry
from referencing.jsonschema import DRAFT202012

VERSIONS = ("2026-02-19.1", "2026-02-20.1")
CATEGORIES = ("connectivity", "lifecycle", "player", "combat", "mode")


def is_object(_, instance):
    return isinstance(instance, dict) or instance == []


Validator = validators.extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("object", is_object),
)


def read(path):
    schema = json.loads(path.read_text())
    # A reference to a text that names its dialect would be followed by that dialect's own validator.
    schema.pop("$schema", None)
    return schema


def own(folder):
    request = Validator(read(folder / "request.json"))
    rules = {}
    for version in VERSIONS:
        document = read(folder / f"{version}.json")
        for category in CATEGORIES:
            rules[version, category] = Validator({**document, "$ref": f"#/$defs/{category}"})

    def takes(body):
        if not request.is_valid(body):
            return False
        envelope = body["envelope"]
        return rules[envelope["schema_version"], envelope["event_category"]].is_valid(envelope)

    return takes


def published(folder):
    outer = read(folder / "ingestion-request-2026-02-19.1.schema.json")
    # Its reference to the envelope leads out of the folder, and each text of it is tried below.
    outer["properties"]["envelope"] = {"type": "object"}
    request = Validator(outer)

    def envelope(suffix, lifecycle):
        text = read(folder / f"envelope-{suffix}.schema.json")
        payload = read(folder / f"lifecycle-payload-{lifecycle}.schema.json")
        registry = Registry().with_resources(
            [(one["$id"], DRAFT202012.create_resource(one)) for one in (text, payload)]
        )
        return Validator(text, registry=registry)

    original = "2026-02-19.1.original"
    texts = [envelope(original, original)] + [envelope(one, one) for one in VERSIONS]

    def takes(body):
        return request.is_valid(body) and any(text.is_valid(body["envelope"]) for text in texts)

    return takes


def main():
    mode, folder = sys.argv[1:]
    takes = {"own": own, "published": published}[mode](pathlib.Path(folder))
    for line in sys.stdin:
        print(int(takes(json.loads(line))), flush=False)


if __name__ == "__main__":
    main()
