//! JSON schemas for editors, made from the same table as the check. The dialect is draft 7, which
//! most editors support.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::keys::{FUNCTION, PIPELINE};
use super::shape::{Key, MapKey, Object, Shape, Word};
use super::value::MAX_NAME;

/// The schema of a pipeline's file, as JSON. Published as `docs/pipeline.schema.json`.
pub fn pipeline_schema() -> String {
    schema(&PIPELINE)
}

/// The schema of a function's own file, as JSON. Published as `docs/function.schema.json`.
pub fn function_schema() -> String {
    schema(&FUNCTION)
}

fn schema(root: &'static Object) -> String {
    let mut definitions = BTreeMap::new();
    define(root, &mut definitions);
    let mut value = definitions.remove(root.definition).unwrap_or_default();
    value["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    value["title"] = json!(root.definition);
    value["definitions"] = json!(definitions);
    format!("{value:#}\n")
}

/// Adds an object, and all objects that its values may be, to the definitions.
fn define(object: &'static Object, definitions: &mut BTreeMap<&'static str, Value>) {
    if definitions.contains_key(object.definition) {
        return;
    }
    // Inserted first, since objects may contain each other.
    definitions.insert(object.definition, Value::Null);
    let mut properties = Map::new();
    for key in object.keys {
        properties.insert(key.name.to_owned(), property(key, definitions));
    }
    let required: Vec<_> = object.keys.iter().filter(|key| key.is_required).map(|key| key.name).collect();
    let mut value = json!({
        "type": "object",
        "description": object.help,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if !object.one_of.is_empty() {
        value["oneOf"] = object.one_of.iter().map(|name| json!({ "required": [name] })).collect();
    }
    definitions.insert(object.definition, value);
}

fn property(key: &Key, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    let mut value = shape(&key.shape, definitions);
    if value.get("$ref").is_some() {
        // In this dialect, keys beside a `$ref` are ignored.
        value = json!({ "allOf": [value] });
    }
    let mut help = key.help.to_owned();
    if let Shape::Choice(words) = key.shape {
        help.extend(words.iter().map(|Word { word, help }| format!("\n{word}: {help}")));
    }
    value["description"] = json!(help);
    if let Some(default) = key.default {
        value["default"] = match key.shape {
            Shape::Flag | Shape::Count { .. } => default.parse().unwrap_or_default(),
            _ => json!(default),
        };
    }
    value
}

fn shape(shape: &Shape, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    match shape {
        Shape::Name => json!({ "type": "string", "minLength": 1, "maxLength": MAX_NAME }),
        Shape::Text => json!({ "type": ["string", "number", "boolean"] }),
        Shape::Path => json!({ "type": "string", "minLength": 1 }),
        Shape::WebsocketUrl => json!({ "type": "string", "pattern": "^wss?://[^\\s/@]+(/\\S*)?" }),
        Shape::NatsUrl => json!({ "type": "string", "pattern": "^(nats|tls)://\\S+$" }),
        Shape::Token => json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" }),
        Shape::HostPort | Shape::Listen => json!({ "type": "string", "pattern": "^\\S+:[0-9]{1,5}$" }),
        Shape::HttpPath => json!({ "type": "string", "pattern": "^/[^\\s?#]*$" }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Size { min, max } => json!({
            "type": ["string", "integer"],
            "pattern": "^[0-9]+ *(B|kB|MB|GB|KiB|MiB|GiB)?$",
            "minimum": min,
            "maximum": max,
        }),
        Shape::Time { .. } => json!({ "type": "string", "pattern": "^[0-9]+ *(ns|us|ms|s|min)$" }),
        Shape::Choice(words) => json!({ "enum": words.iter().map(|word| word.word).collect::<Vec<_>>() }),
        Shape::List(of) => json!({ "type": "array", "items": self::shape(of, definitions) }),
        Shape::Map { key, value } => {
            let names = match key {
                MapKey::Name => json!({ "minLength": 1, "maxLength": MAX_NAME }),
                MapKey::Variable => json!({ "pattern": "^[^=]+$" }),
            };
            let values = self::shape(value, definitions);
            json!({ "type": "object", "propertyNames": names, "additionalProperties": values })
        }
        Shape::Object(object) => reference(object, definitions),
        Shape::Either { if_key, then, otherwise } => json!({
            "if": { "required": [if_key] },
            "then": reference(then, definitions),
            "else": reference(otherwise, definitions),
        }),
    }
}

fn reference(object: &'static Object, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    define(object, definitions);
    json!({ "$ref": format!("#/definitions/{}", object.definition) })
}

#[cfg(test)]
mod tests;
