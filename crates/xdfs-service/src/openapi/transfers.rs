//! The schema of transfers, whose types belong to the library: made from the options that they have
//! by default.

use serde_json::{Map, Value, json};
use xdfs::Job;

use crate::places::PLACE_LENGTH_MAX;

/// An absolute path on the machine of the service.
const PATH: &str = r"^/[^\u0000-\u001f\u007f-\u009f]*$";
/// A URL of a server. A path has other bytes percent-encoded, and names may begin with digits, if
/// they aren't numbers.
const URL: &str = "^(xdfs|ssh|sshftp|ftp|ftps|gsiftp)://[a-z]([a-z0-9-]*[a-z0-9])?\
    (\\.[a-z]([a-z0-9-]*[a-z0-9])?)*(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._/-]*)?$";
/// A name within a tree, without the signs of patterns.
const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9._-]*$";
/// Seconds.
const DURATION: &str = r"^[0-9]{1,9}(\.[0-9]{1,9})?s$";

/// A transfer of each kind.
pub(super) fn schema() -> Value {
    let kinds = ["file", "tree", "sync"].map(kind);
    json!({
        "description": "A copy of a file or a tree, or a synchronisation. One of the places is on \
            a server. What is left out is as it is by default.",
        "oneOf": kinds,
    })
}

fn kind(name: &str) -> Value {
    let text = json!({name: {"source": "/", "target": "/"}});
    // A job with nothing but its places has the other fields by default.
    let job = serde_json::from_value::<Job>(text).and_then(serde_json::to_value);
    let mut schema = of(name, &job.unwrap_or_default()[name]);
    schema["required"] = json!(["source", "target"]);
    schema["anyOf"] = json!([
        {"properties": {"source": server()}},
        {"properties": {"target": server()}},
    ]);
    json!({
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": false,
    })
}

fn server() -> Value {
    json!({"type": "string", "maxLength": PLACE_LENGTH_MAX, "pattern": URL})
}

/// A place of a transfer.
pub(super) fn place() -> Value {
    json!({
        "description": "A URL, or an absolute path on the machine of the service.",
        "type": "string",
        "maxLength": PLACE_LENGTH_MAX,
        "anyOf": [{"pattern": PATH}, {"pattern": URL}],
    })
}

/// The schema of a field with this value by default.
fn of(name: &str, value: &Value) -> Value {
    let words = |words: &[&str]| json!({"type": "string", "enum": words});
    let or_null = |mut schema: Value| {
        schema["type"] = json!([schema["type"], "null"]);
        // An index would add what is missing.
        if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            words.push(Value::Null);
        }
        schema
    };
    match (name, value) {
        ("source" | "target", _) => place(),
        ("way", _) => words(&["any", "direct", "client"]),
        ("skip", _) => words(&[
            "never",
            "identical",
            "size-and-time",
            "content",
            "not-older",
            "all",
        ]),
        ("resume", _) => words(&["never", "trust", "verify"]),
        ("compare", _) => words(&["size-and-time", "digest"]),
        ("durability", _) => words(&["batch", "full", "none"]),
        ("digest" | "file_digests", _) => or_null(words(&["none", "crc64nvme", "blake3"])),
        ("journal", _) => json!({"type": "null", "description": "The service has its own."}),
        ("rules", _) => {
            let rules = ["exclude", "include"].map(rule);
            json!({"type": "array", "items": {"oneOf": rules}})
        }
        ("only", _) => json!({"type": ["array", "null"], "items": pattern(NAME)}),
        ("backup", _) => or_null(pattern(PATH)),
        ("duration" | "age_min" | "age_max", _) => or_null(pattern(DURATION)),
        (_, Value::Null) => or_null(number(u64::MAX)),
        (_, Value::Bool(_)) => json!({"type": "boolean"}),
        ("retries_max", Value::Number(_)) => number(u64::from(u32::MAX)),
        (_, Value::Number(_)) => number(u64::MAX),
        (_, Value::String(_)) => pattern(DURATION),
        (_, Value::Array(_)) => json!({"type": "array"}),
        (_, Value::Object(fields)) => object(fields),
    }
}

/// A rule of a filter.
fn rule(kind: &str) -> Value {
    json!({
        "type": "object",
        "properties": {kind: pattern(NAME)},
        "required": [kind],
        "additionalProperties": false,
    })
}

fn pattern(pattern: &str) -> Value {
    json!({"type": "string", "pattern": pattern})
}

fn number(most: u64) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": most})
}

fn object(fields: &Map<String, Value>) -> Value {
    let fields = fields.iter();
    let properties: Map<_, _> = fields
        .map(|(name, value)| (name.clone(), of(name, value)))
        .collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_schema() {
        for kind in schema()["oneOf"].as_array().into_iter().flatten() {
            let properties = kind["properties"].as_object();
            for (name, schema) in properties.into_iter().flatten() {
                let options = &schema["properties"]["options"]["properties"];
                assert!(schema["properties"]["source"].is_object(), "{name}");
                let tree = if name == "sync" {
                    &options["tree"]["properties"]
                } else {
                    options
                };
                let rate = &tree["parameters"]["properties"]["rate_bytes_per_s_max"];
                assert_eq!(rate["type"], json!(["integer", "null"]), "{name}");
            }
        }
    }
}
