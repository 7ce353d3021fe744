"""Twenty tools with typical schemas, and questions that a user would ask of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    description: str
    asked: tuple[str, ...]
    schema: Mapping[str, Any]


def tool(name: str, description: str, /, *asked: str, required: str = "", defs: Any = None, **properties: Any) -> Case:
    """Return the case of one tool. ``required`` lists names of properties, separated by spaces."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    if defs:
        schema["$defs"] = defs
    return Case(name, description, asked, schema)


TEXT = {"type": "string"}
DATE = {"type": "string", "format": "date"}
COLUMN = {"type": "string", "minLength": 1, "maxLength": 40}
NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
    },
    "required": ["name"],
}
FILTER = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "column": COLUMN,
                "is": {"enum": ["=", "!=", "<", "<=", ">", ">="]},
                "value": {"type": ["string", "number", "boolean", "null"]},
            },
            "required": ["column", "is", "value"],
        },
        {
            "type": "object",
            "properties": {
                "all": {"type": "array", "items": {"$ref": "#/$defs/filter"}, "minItems": 1, "maxItems": 4},
            },
            "required": ["all"],
        },
    ]
}
SHAPE = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["kind", "radius"],
        },
        {
            "type": "object",
            "properties": {
                "kind": {"const": "box"},
                "width": {"type": "number", "minimum": 0.5, "maximum": 100},
                "height": {"type": "number", "minimum": 0.5, "maximum": 100},
            },
            "required": ["kind", "width", "height"],
        },
    ]
}

CASES = (
    tool(
        "search",
        "Searches the web.",
        "Find recent articles about foxes in cities.",
        "What is the latest version of pandas?",
        "Look up three German pages about bicycle repair.",
        required="query",
        query=TEXT,
        limit={"type": "integer", "minimum": 1, "maximum": 20},
        language={"enum": ["en", "de", "fr", "es"]},
    ),
    tool(
        "write_file",
        "Writes a text file.",
        "Make a Python file that prints the first ten squares.",
        "Write a short README for a weather project.",
        "Save a haiku about autumn in poem.txt.",
        required="path content",
        path={"type": "string", "pattern": r"^[A-Za-z0-9_/-]{1,60}\.(py|md|txt|csv)$"},
        content=TEXT,
        append={"type": "boolean"},
    ),
    tool(
        "plot",
        "Draws a chart of a data frame.",
        "Draw the mean temperature per month as bars.",
        "Scatter height against weight, coloured by sex.",
        "Make a line chart of sales over time, with a title.",
        required="kind x y",
        kind={"enum": ["line", "bar", "scatter", "hist"]},
        x=COLUMN,
        y={"type": "array", "items": COLUMN, "minItems": 1, "maxItems": 4},
        title={"type": ["string", "null"], "maxLength": 80},
        size={"type": "array", "prefixItems": [{"type": "number", "minimum": 1, "maximum": 20}] * 2, "minItems": 2},
    ),
    tool(
        "matrix",
        "Stores a matrix of numbers.",
        "Store the 3 by 3 identity matrix.",
        "Store two rows: 1 2 3 and 4 5 6.",
        "Store a 2 by 2 rotation by 90 degrees.",
        required="rows",
        rows={
            "type": "array",
            "items": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 4},
            "minItems": 1,
            "maxItems": 6,
        },
    ),
    tool(
        "create_event",
        "Puts an event into a calendar.",
        "Lunch with Ada on 3 March 2025 at noon.",
        "Team meeting every Monday at 9:30, starting 2025-01-06, with bob@example.com.",
        "Block the morning of the 14th of July 2026.",
        required="title start",
        title={"type": "string", "minLength": 1, "maxLength": 80},
        start={"type": "string", "format": "date-time"},
        end={"type": "string", "format": "date-time"},
        guests={"type": "array", "items": {"type": "string", "format": "email"}, "maxItems": 5},
        repeat={"enum": ["never", "daily", "weekly", "monthly"]},
    ),
    tool(
        "set_range",
        "Sets the limits of a gauge.",
        "Let it go from minus ten to forty degrees.",
        "Zero to one, with a warning at 0.8.",
        "From -273.15 up to 1000.",
        required="low high",
        low={"type": "number", "minimum": -273.15, "maximum": 1000},
        high={"type": "number", "minimum": -273.15, "maximum": 1000},
        warn_at={"type": "number", "minimum": 0, "maximum": 1},
        digits={"type": "integer", "minimum": 0, "maximum": 6},
    ),
    tool(
        "make_tree",
        "Makes folders inside folders.",
        "A project with src and tests, and in src a package app.",
        "Folders for the years 2023 and 2024, each with the four quarters.",
        "Only one folder called data.",
        required="root",
        defs={"node": NODE},
        root={"$ref": "#/$defs/node"},
    ),
    tool(
        "query_table",
        "Reads rows of a table.",
        "The ten oldest customers in Berlin.",
        "All orders above 100 euros that are not paid.",
        "Rows where age is at least 18 and country is France.",
        required="table where",
        defs={"filter": FILTER},
        table=COLUMN,
        where={"$ref": "#/$defs/filter"},
        order_by=COLUMN,
        limit={"type": "integer", "minimum": 1, "maximum": 1000},
    ),
    tool(
        "draw_shapes",
        "Draws shapes on a canvas.",
        "A circle of radius 5 beside a box of 10 by 20.",
        "Three boxes, each smaller than the one before.",
        "One very small circle.",
        required="shapes",
        shapes={"type": "array", "items": SHAPE, "minItems": 1, "maxItems": 6},
    ),
    tool(
        "send_mail",
        "Sends an e-mail.",
        "Tell eve@example.com that the report is late.",
        "Invite ada@example.org and bob@example.org to the party on Friday.",
        "Thank the support team for their help.",
        required="to subject body",
        to={"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 1, "maxItems": 4},
        subject={"type": "string", "minLength": 1, "maxLength": 100},
        body=TEXT,
        urgent={"type": "boolean"},
    ),
    tool(
        "add_tasks",
        "Adds tasks to a list.",
        "Buy milk, call the bank by Friday, and water the plants.",
        "Everything I need to do to move house.",
        "One urgent task: renew the passport before 2025-09-01.",
        required="tasks",
        tasks={
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "title": {"type": "string", "minLength": 1, "maxLength": 80},
                    "due": {"anyOf": [DATE, {"type": "null"}]},
                    "priority": {"enum": [1, 2, 3]},
                    "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
                },
                "required": ["title", "priority"],
                "additionalProperties": False,
            },
        },
    ),
    tool(
        "count_words",
        "Stores how often words occur.",
        "Count the words of: the cat and the dog and the bird.",
        "apple twice, pear once, plum five times",
        "How often does each word occur in 'to be or not to be'?",
        required="counts",
        counts={"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    ),
    tool(
        "book_room",
        "Books a room in a hotel.",
        "A double room from the 3rd to the 7th of May 2025, no smoking.",
        "A suite for four people next Christmas, with breakfast.",
        "The cheapest single room for tonight, 2025-02-11.",
        required="arrival departure room",
        arrival=DATE,
        departure=DATE,
        room={"enum": ["single", "double", "suite"]},
        people={"type": "integer", "minimum": 1, "maximum": 6},
        wishes={"type": "array", "items": {"enum": ["breakfast", "quiet", "sea view", "no smoking"]}, "maxItems": 4},
    ),
    tool(
        "http_request",
        "Makes an HTTP request.",
        "Get the list of users from api.example.com.",
        "Post a new comment with the text hello.",
        "Delete item 17 with my token abc.",
        required="method url",
        method={"enum": ["GET", "POST", "PUT", "DELETE"]},
        url={"type": "string", "pattern": r"^https?://[a-z0-9.-]{1,60}(/[A-Za-z0-9_./-]{0,80})?$"},
        headers={"type": "object", "additionalProperties": {"type": "string", "maxLength": 60}},
        body={"type": ["string", "null"], "maxLength": 200},
        timeout={"type": "number", "minimum": 0.1, "maximum": 60},
    ),
    tool(
        "resize_image",
        "Changes the size of an image.",
        "Make photo 550e8400-e29b-41d4-a716-446655440000 half as large.",
        "A thumbnail of 64 by 64 pixels as PNG, please.",
        "Turn it by 90 degrees and save it as JPEG with quality 80.",
        required="image",
        image={"type": "string", "format": "uuid"},
        width={"type": "integer", "minimum": 1, "maximum": 10_000},
        height={"type": "integer", "minimum": 1, "maximum": 10_000},
        turn={"enum": [0, 90, 180, 270]},
        output={
            "anyOf": [
                {"const": "png"},
                {
                    "type": "object",
                    "properties": {"jpeg": {"type": "integer", "minimum": 1, "maximum": 100}},
                    "required": ["jpeg"],
                },
            ]
        },
    ),
    tool(
        "run_shell",
        "Runs a command.",
        "List the files here, with their sizes.",
        "How much space is left on the disk?",
        "Count the lines of all Python files.",
        required="command",
        command={
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 60},
            "minItems": 1,
            "maxItems": 10,
        },
        timeout_s={"type": "integer", "exclusiveMinimum": 0, "maximum": 600},
        env={"type": "object", "additionalProperties": TEXT},
    ),
    tool(
        "translate",
        "Translates a text.",
        "Good morning, how are you? in French and Spanish.",
        "Say 'where is the station' in Japanese.",
        "Translate this into German: The early bird catches the worm.",
        required="text to",
        text={"type": "string", "minLength": 1, "maxLength": 300},
        to={"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2}$"}, "minItems": 1, "maxItems": 5},
        formal={"type": "boolean"},
    ),
    tool(
        "train_model",
        "Trains a model on a table.",
        "A random forest with 200 trees to predict price.",
        "Logistic regression for churn, 5 folds, without the id column.",
        "Try gradient boosting with a small learning rate.",
        required="target model",
        target=COLUMN,
        model={
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "name": {"const": "forest"},
                        "trees": {"type": "integer", "minimum": 1, "maximum": 1000},
                        "depth": {"type": ["integer", "null"], "minimum": 1, "maximum": 64},
                    },
                    "required": ["name", "trees"],
                },
                {
                    "type": "object",
                    "properties": {
                        "name": {"enum": ["linear", "logistic", "boosting"]},
                        "rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                    },
                    "required": ["name"],
                },
            ]
        },
        drop={"type": "array", "items": COLUMN, "maxItems": 5},
        folds={"type": "integer", "minimum": 2, "maximum": 10},
    ),
    tool(
        "save_contact",
        "Saves a person's contact data.",
        "Ada Lovelace, ada@example.com, born 10 December 1815, lives in London.",
        "Bob, phone +49 30 123456.",
        "My dentist Dr. Grün in Köln, Hauptstraße 5.",
        required="name",
        defs={
            "address": {
                "type": "object",
                "properties": {
                    "street": {"type": "string", "maxLength": 60},
                    "city": {"type": "string", "maxLength": 40},
                },
                "required": ["city"],
            }
        },
        name={"type": "string", "minLength": 1, "maxLength": 60},
        email={"type": "string", "format": "email"},
        phone={"type": "string", "pattern": r"^\+?[0-9][0-9 ]{3,18}$"},
        born=DATE,
        home={"$ref": "#/$defs/address"},
        work={"$ref": "#/$defs/address"},
    ),
    tool(
        "remember",
        "Remembers anything.",
        "My favourite colour is green.",
        "The meeting was moved to Thursday at 15:00, room B12.",
        "Remember three facts about the moon.",
        required="facts",
        facts={"type": "array", "items": {"type": "string"}, "minItems": 1},
        about={"type": "object"},
    ),
)
