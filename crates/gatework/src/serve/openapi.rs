//! The description of the interface (OpenAPI 3.1).

use serde_json::{Value, json};

/// Returns the description.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gatework",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs of a folder, predictions of their models, and trainings. Every error is JSON with what is \
                            wrong and what to do (RFC 9457).",
        },
        "paths": paths(),
        "components": { "schemas": schemas(), "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } } },
    })
}

fn paths() -> Value {
    let name = parameter("name", "The name of a run.");
    json!({
        "/healthz": { "get": operation("Tells that the server is alive.", &[], ok("application/json", json!({ "type": "object" }))) },
        "/metrics": { "get": operation("Counters for Prometheus.", &[], ok("text/plain", json!({ "type": "string" }))) },
        "/openapi.json": { "get": operation("This description.", &[], ok("application/json", json!({ "type": "object" }))) },
        "/api/runs": { "get": operation("All runs, the last changed first.", &[], ok("application/json", reference("Runs"))) },
        "/api/events": { "get": operation(
            "The list of runs whenever it changes, as server-sent events `runs`.",
            &[], ok("text/event-stream", json!({ "type": "string" })),
        ) },
        "/api/runs/{name}": { "get": operation(
            "A run: settings, summary, progress and files.",
            std::slice::from_ref(&name), ok("application/json", reference("Run")),
        ) },
        "/api/runs/{name}/events": { "get": operation(
            "A run whenever it changes, as server-sent events `run`; ends when its training has ended.",
            std::slice::from_ref(&name), ok("text/event-stream", json!({ "type": "string" })),
        ) },
        "/api/runs/{name}/predict": { "post": predict(&name) },
        "/api/runs/{name}/forecast": { "get": operation(
            "A forecast of the data that a forecaster was trained on, with what was before and came after.",
            &[
                name.clone(),
                query("series", "string", "The id of a series; by default the first."),
                query("origin", "integer", "The number of values before the forecast; by default the last horizon is forecast."),
            ],
            ok("application/json", json!({ "type": "object" })),
        ) },
        "/api/runs/{name}/evaluation": { "get": operation(
            "The scores of an automaton in the protocols of its experiment, or of a classifier on its test rows. One evaluation runs at a time.",
            std::slice::from_ref(&name), ok("application/json", json!({ "type": "object" })),
        ) },
        "/api/runs/{name}/files/{file}": { "get": operation(
            "A file of a run, such as `summary.json`.",
            &[name.clone(), parameter("file", "The name of a file that the run lists.")],
            ok("application/octet-stream", json!({ "type": "string" })),
        ) },
        "/api/runs/{name}/export/{format}": { "get": operation(
            "The circuit or model of a run in another format, such as `verilog` or `onnx`.",
            &[
                name.clone(),
                parameter("format", "A format that the run lists."),
                query("minimized", "boolean", "Whether to export the minimised circuit of the run."),
                query("output", "integer", "An output of the circuit: its fan-in cone alone is exported."),
            ],
            ok("application/octet-stream", json!({ "type": "string" })),
        ) },
        "/api/experiments": { "get": operation(
            "The built-in experiments.", &[], ok("application/json", json!({ "type": "object" })),
        ) },
        "/api/train": { "post": with_body(
            operation("Starts a training.", &[], json!({ "202": response("The name of the run.", "application/json", json!({
                "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } },
            })) })),
            json!({ "application/json": { "schema": reference("Training") } }),
        ) },
        "/api/runs/{name}/stop": { "post": operation(
            "Stops a training that this server has started; it can be resumed.",
            std::slice::from_ref(&name), json!({ "202": { "description": "It writes a checkpoint and ends." } }),
        ) },
        "/api/session": { "post": with_body(
            operation("Exchanges the token for a cookie, for browsers.", &[], json!({ "204": { "description": "The cookie is set." } })),
            json!({ "application/json": { "schema": {
                "type": "object", "required": ["token"], "additionalProperties": false,
                "properties": { "token": { "type": "string" } },
            } } }),
        ) },
    })
}

fn predict(name: &Value) -> Value {
    let mut responses =
        ok("application/json", json!({ "oneOf": [reference("Forecasts"), reference("Classes")] }));
    responses["200"]["content"]["text/csv"] = json!({ "schema": { "type": "string" } });
    let about = "Forecasts or classes of new data. `Accept: text/csv` asks for a table; forecasts of rows or CSV only.";
    with_body(
        operation(
            about,
            &[
                name.clone(),
                query("history", "integer", "The number of values before each forecast to return."),
            ],
            responses,
        ),
        json!({
            "application/json": { "schema": { "anyOf": [reference("Histories"), reference("Rows"), reference("Images")] } },
            "text/csv": { "schema": { "type": "string" } },
        }),
    )
}

fn schemas() -> Value {
    let numbers = json!({ "type": "array", "items": { "type": "number" } });
    let text = json!({ "type": "string" });
    let run = json!({
        "type": "object", "required": ["name", "state"],
        "properties": {
            "name": text, "kind": { "enum": ["automaton", "classifier", "forecaster"] },
            "state": { "enum": ["training", "finished", "interrupted", "failed", "damaged"] },
        },
    });
    let one_task: Vec<Value> = ["experiment", "picture", "resume", "minimize"]
        .iter()
        .map(|key| json!({ "required": [key], "properties": { *key: { "type": "string" } } }))
        .collect();
    json!({
        "Problem": {
            "type": "object", "required": ["title", "status", "detail"],
            "properties": { "title": text, "status": { "type": "integer" }, "detail": text },
        },
        "Run": run,
        "Runs": { "type": "object", "required": ["runs"], "properties": { "runs": { "type": "array", "items": reference("Run") } } },
        "Histories": {
            "type": "object", "required": ["series"], "additionalProperties": false,
            "properties": { "series": { "type": "array", "items": {
                "type": "object", "required": ["values"], "additionalProperties": false,
                "properties": { "id": text, "values": numbers },
            } } },
        },
        "Rows": {
            "type": "object", "required": ["rows"], "additionalProperties": false,
            "properties": { "rows": { "type": "array", "items": { "oneOf": [
                { "type": "object", "additionalProperties": { "type": ["number", "string", "boolean", "null"] } },
                { "type": "array", "items": { "type": ["number", "string", "null"] } },
            ] } } },
        },
        "Images": {
            "type": "object", "required": ["images"], "additionalProperties": false,
            "properties": { "images": { "type": "array", "items": { "type": "string", "contentEncoding": "base64", "contentMediaType": "image/png" } } },
        },
        "Forecasts": {
            "type": "object", "required": ["forecasts"],
            "properties": { "forecasts": { "type": "array", "items": {
                "type": "object", "required": ["id", "is_new", "values", "intervals"],
                "properties": {
                    "id": text, "is_new": { "type": "boolean" }, "values": numbers,
                    "times": { "type": "array", "items": text },
                    "intervals": { "type": "array", "items": {
                        "type": "object", "required": ["level", "low", "high"],
                        "properties": { "level": { "type": "number" }, "low": numbers, "high": numbers },
                    } },
                },
            } } },
        },
        "Classes": {
            "type": "object", "required": ["classes", "predictions"],
            "properties": {
                "classes": { "type": "array", "items": text },
                "predictions": { "type": "array", "items": {
                    "type": "object", "required": ["class", "index", "scores"],
                    "properties": { "class": text, "index": { "type": "integer" }, "scores": { "type": "array", "items": { "type": "integer" } } },
                } },
            },
        },
        "Training": {
            "type": "object", "additionalProperties": false,
            "description": "Exactly one of experiment, picture, resume and minimize.",
            "properties": {
                "experiment": { "type": ["string", "null"], "description": "A built-in experiment, or a rule such as B36/S23." },
                "picture": { "type": ["string", "null"], "contentEncoding": "base64", "contentMediaType": "image/png" },
                "resume": { "type": ["string", "null"], "description": "The name of an interrupted run." },
                "minimize": { "type": ["string", "null"], "description": "The name of a run whose circuit is to be minimised." },
                "name": { "type": ["string", "null"], "description": "The name of the new run." },
                "seed": { "type": ["integer", "null"], "minimum": 0 },
                "repeat": { "type": "boolean", "description": "Whether the picture is a tile that repeats." },
            },
            "oneOf": one_task,
        },
    })
}

fn operation(about: &str, parameters: &[Value], mut responses: Value) -> Value {
    let problem = response("What is wrong and what to do.", "application/problem+json", reference("Problem"));
    responses["default"] = problem;
    json!({ "summary": about, "parameters": parameters, "responses": responses, "security": [{}, { "token": [] }] })
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn with_body(mut operation: Value, content: Value) -> Value {
    operation["requestBody"] = json!({ "required": true, "content": content });
    operation
}

fn ok(media: &str, schema: Value) -> Value {
    json!({ "200": response("What was asked for.", media, schema) })
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn response(about: &str, media: &str, schema: Value) -> Value {
    let mut content = json!({});
    content[media] = json!({ "schema": schema });
    json!({ "description": about, "content": content })
}

fn parameter(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "description": about, "schema": { "type": "string" } })
}

fn query(name: &str, kind: &str, about: &str) -> Value {
    let schema = if kind == "integer" {
        json!({ "type": kind, "minimum": 0, "maximum": u64::MAX })
    } else {
        json!({ "type": kind })
    };
    json!({ "name": name, "in": "query", "required": false, "description": about, "schema": schema })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}
