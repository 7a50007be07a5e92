"""Packets for the intents door and the actions that its contract derives from them.

An implementation of the contract's rules that shares nothing with the gate's. Prints the vectors as
JSON; tests/fixtures/intents/vectors.json is its output with CPython 3.11, whose `fromisoformat` is the
authority on dates. Only texts that every later version reads alike are among them.
"""

import hashlib
import json
import sys
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

THRESHOLD = 0.75
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class Failed(Exception):
    pass


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def first_day(after, weekday):
    """The first such weekday on or after a day."""
    return after + timedelta(days=(weekday - after.weekday()) % 7)


def due(value, today):
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word == "today":
        return today.isoformat()
    if word == "tomorrow":
        return (today + timedelta(days=1)).isoformat()
    if word in ("next week", "next week monday"):
        return first_day(today + timedelta(days=7), 0).isoformat()
    name = word[5:] if word.startswith("next ") else word
    if name in DAYS:
        return first_day(today + timedelta(days=1), DAYS.index(name)).isoformat()
    try:
        datetime.fromisoformat(value.strip())
    except ValueError:
        raise Failed("VALIDATION_ERROR") from None
    return value


def sure(packet):
    confidence = packet.get("confidence")
    if isinstance(confidence, str):
        try:
            confidence = float(confidence)
        except ValueError:
            return True
    return confidence is None or not confidence < THRESHOLD


def texts(*values):
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def required(value):
    if value is None:
        raise Failed("VALIDATION_ERROR")
    return value


def plan(packet, today):
    if not sure(packet):
        raise Failed("POLICY_LOW_CONFIDENCE")
    fields = packet.get("fields") or {}
    target = packet.get("target")
    target = target if isinstance(target, dict) else {}
    spoken = packet.get("natural_language")
    if target.get("kind") == "list":
        if target.get("key") != "shopping_list":
            raise Failed("VALIDATION_ERROR")
        item = required(texts(fields.get("item"), fields.get("title"), spoken)).strip()
        payload = {"list_key": "shopping_list", "item": item, "notes": fields.get("notes")}
        return "notion.list.add_item", payload
    if target.get("kind") == "notes":
        content = required(texts(fields.get("content"), fields.get("note"), spoken)).strip()
        title = texts(fields.get("title")) or content[:80]
        return "notion.note.capture", {"title": title, "content": content, "tags": fields.get("tags")}
    if packet.get("intent_type") == "create_task":
        payload = {"title": required(texts(fields.get("title"), packet.get("title")))}
        for name in ("status", "priority"):
            if fields.get(name) is not None:
                payload[name] = fields[name]
        for name in ("project", "project_id"):
            if fields.get(name) not in (None, ""):
                payload["project"] = fields[name]
                break
        if fields.get("due") is not None:
            payload["due"] = due(fields["due"], today)
        return "notion.tasks.create", payload
    if packet.get("intent_type") == "update_task":
        page = texts(fields.get("task_id"), fields.get("notion_page_id"))
        if page is None:
            raise Failed("POLICY_MISSING_TASK_ID")
        patch = {k: fields[k] for k in ("status", "priority", "due") if fields.get(k) is not None}
        if not patch:
            raise Failed("VALIDATION_ERROR")
        if "due" in patch:
            patch["due"] = due(patch["due"], today)
        return "notion.tasks.update", {"notion_page_id": page, "patch": patch}
    raise Failed("UNSUPPORTED_INTENT_TYPE")


def create(**fields):
    return {"intent_type": "create_task", "fields": {"title": "t", **fields}}


def update(**fields):
    return {"intent_type": "update_task", "fields": fields}


def on_list(**fields):
    return {"target": {"kind": "list", "key": "shopping_list"}, "fields": fields}


def note(**fields):
    return {"target": {"kind": "notes"}, "fields": fields}


MOMENTS = [
    "2026-11-18T12:00:00+00:00",  # a Wednesday
    "2026-11-22T23:30:00+00:00",  # late on a Sunday
    "2026-11-23T00:00:00+00:00",
    "2026-07-15T23:30:00+00:00",  # already Thursday in London
    "2026-03-29T00:59:59+00:00",  # the clocks change
    "2026-12-31T23:59:59+00:00",
    "2028-02-28T10:00:00+00:00",
]
ZONES = ["Europe/London", "UTC", "Pacific/Auckland", "America/Los_Angeles"]

WORDS = ["today", "tomorrow", "next week", "next week monday"]
WORDS += DAYS + [f"next {day}" for day in DAYS]
SPELLINGS = ["TODAY", " Tomorrow\t", "\u00a0next week\u2003", "\x1cfriday\x1f", "Next FRIDAY"]
NO_DATES = ["", " ", "soon", "next", "next year", "next  friday", "fri", "week", "next week friday"]

ISO = [
    "2026-12-01", "20261201", "2026-W49-1", "2026W491", "2026-W49", "2026W49", "2026-W53-5",
    "2025-W53-1", "2024-02-29", "2026-02-29", "2026-13-01", "2026-00-01", "2026-11-31", "0000-01-01",
    "0001-01-01", "9999-12-31", "2026-12", "2026", "2026-335", "2026335", "2026-12-1", "26-12-01",
    "2026-W54-1", "2026-W00-1", "2026-W49-8", "2026-W49-0", "2026-W4-1", "2026/12/01", "01.12.2026",
    "2026-12-01T10", "2026-12-01T10:30", "2026-12-01T10:30:15", "2026-12-01 10:30:15",
    "2026-12-01t10:30", "2026-12-01x10:30", "2026-12-01\u00e910:30", "2026-12-01\U0001f60010:30",
    "20261201T1030", "20261201T103015", "20261201 10", "2026-12-01T1030", "2026-12-01T10:3015",
    "2026-12-01T10:30:15.5", "2026-12-01T10:30:15.123456", "2026-12-01T10:30:15.1234567",
    "2026-12-01T10:30:15,25", "2026-12-01T103015.25", "2026-12-01T10:30:15.", "2026-12-01T10:30:15.x",
    "2026-12-01T25:00", "2026-12-01T10:60", "2026-12-01T10:30:60", "2026-12-01T1", "2026-12-01T1:30",
    "2026-12-01T10:3", "2026-12-01T10:30Z", "2026-12-01T10Z", "20261201T103015Z",
    "2026-12-01T10:30z", "2026-12-01T10:30ZZ", "2026-12-01T10:30+01:00", "2026-12-01T10:30-05:30",
    "2026-12-01T10:30+01", "2026-12-01T10:30+0100", "2026-12-01T10:30+01:00:30",
    "2026-12-01T10:30+01:00:30.5", "2026-12-01T10:30+24:00", "2026-12-01T10:30+23:59",
    "2026-12-01T10:30+1", "2026-12-01T10:30+", "2026-12-01+01:00",
    "2026-12-01Z", "2026-W49-1T10:30", "2026-W49T10:30", "2026W491T1030Z", "2026W49T10",
    "2026-W49-1 10", "2026-12-01T10:30:15.5+02:00", "2026-12-01T10:30:15.5Z", "T10:30", "10:30",
    "2026-1\u0662-01", "\u0662026-12-01", "2026-12-01\n", " 2026-12-01", "2026-12-01 ", "+2026-12-01",
    "-2026-12-01", "2026--12-01", "2026-12-01T10::30", "2026-12-01T:30", "2026-12-01TT10:30",
]

OTHERS = [
    create(due=20261201), create(due=1.5), create(due=True), create(due={"start": "today"}),
    create(due=["today"]), create(due=None), create(due=0), create(due=False),
    create(status="todo", priority=1), create(status=None, priority=[1, 2]), create(status=""),
    create(status={"a": None}, priority=False), create(project="p"), create(project_id="q"),
    create(project="p", project_id="q"), create(project="", project_id=5), create(project=None),
    create(project={"name": "p"}), create(title=" padded "), create(title="\u00e9\u4e16\U0001f600/\x7f"),
    {"intent_type": "create_task", "title": "of the packet"},
    {"intent_type": "create_task", "title": "of the packet", "fields": {"title": "  "}},
    {"intent_type": "create_task", "title": "of the packet", "fields": {"title": "own"}},
    {"intent_type": "create_task", "title": 5}, {"intent_type": "create_task", "fields": None},
    {"intent_type": "create_task", "target": "list", "fields": {"title": "t"}},
    {"intent_type": "create_task", "target": [], "fields": {"title": "t"}},
    update(task_id="p"), update(status="done"), update(task_id="p", status="done"),
    update(notion_page_id="p", due="next week"), update(task_id="p", title="new", project="x"),
    update(task_id="p", priority=2, title="new"), update(task_id="p", due="never"),
    update(task_id="p", due=5), update(task_id="p", status=None), update(task_id="", status="x"),
    update(task_id="p", notion_page_id="q", status="x"), update(task_id="p", status=""),
    on_list(item=" milk "), on_list(item="", title="eggs\n"), on_list(item=" ", notes="2 l"),
    on_list(item="milk", notes=None), on_list(item="milk", notes={"a": 1}), on_list(),
    {**on_list(), "natural_language": "\tbuy tea "}, {**on_list(item="x"), "natural_language": "y"},
    {"target": {"kind": "list", "key": "films"}, "fields": {"item": "x"}},
    {"target": {"kind": "list"}, "fields": {"item": "x"}},
    note(content=" c ", tags=["a"]), note(note="n"), note(content="c", title="t", tags=None),
    note(content="  " + "\u00e4" * 100 + "  "), note(note="n", tags="a"), note(), note(content="a\n b"),
    {**note(), "natural_language": "  remember "},
    {"intent_type": "dance"}, {}, {"target": {"kind": "calendar"}},
    {**create(), "schema_version": ""}, {**create(), "schema_version": 0},
    {**create(), "schema_version": False}, {**create(), "schema_version": None},
    {**create(), "request_id": 5}, {**create(), "request_id": {"a": [1.5]}},
]
CONFIDENCES = [
    0.74, 0.75, 0, 1, -1, None, "0.74", "0.75", " 0.5 ", "1e-1", "high", "", "nan", "inf", "-inf", "0_1",
    "0_.5", ".9", "0x1", "1\u00a0", "\u0661", 1e300,
]


def cases():
    for zone in ZONES:
        for moment in MOMENTS:
            for word in WORDS:
                yield create(due=word), moment, zone
    for text in SPELLINGS + NO_DATES + ISO:
        yield create(due=text), MOMENTS[0], "Europe/London"
        yield update(task_id="p", due=text), MOMENTS[3], "Europe/London"
    for packet in OTHERS:
        yield packet, MOMENTS[0], "Europe/London"
    for confidence in CONFIDENCES:
        yield {**create(), "confidence": confidence}, MOMENTS[0], "Europe/London"


def vector(packet, moment, zone):
    packet = {"kind": "intent", **packet}
    now = datetime.fromisoformat(moment)
    today = now.astimezone(ZoneInfo(zone)).date()
    known = {
        "packet": json.dumps(packet, ensure_ascii=False),
        "now_ms": round(now.timestamp() * 1000),
        "zone": zone,
        "key": hashlib.sha256(canonical(packet).encode()).hexdigest(),
    }
    try:
        action, payload = plan(packet, today)
    except Failed as failed:
        return {**known, "code": str(failed)}
    text = canonical({"action": action, "payload": payload})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {**known, "action": action, "payload": canonical(payload), "action_key": f"action:{digest}"}


def main():
    assert date(2026, 11, 18).strftime("%A") == "Wednesday"
    lines = [json.dumps(vector(*case), ensure_ascii=True) for case in cases()]
    sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
