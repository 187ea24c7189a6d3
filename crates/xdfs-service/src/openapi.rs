//! The description of the REST interface (OpenAPI 3.1), made from the types and handlers.

mod transfers;

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use utoipa::OpenApi;

use crate::model::JobSummary;
use crate::problem::ProblemBody;
use crate::{api, logins, model, secrets, tokens};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "xdfs transfer service",
        description = "Copies are submitted as jobs, kept in a database, and run."
    ),
    paths(
        api::list,
        api::submit,
        api::show,
        api::change,
        api::set,
        api::delete,
        api::files,
        api::manifest,
        api::add_schedule,
        api::schedules,
        api::schedule,
        api::delete_schedule,
        api::transfers,
        api::failures,
        api::events,
        api::all_events,
        api::links,
        api::places,
        secrets::list,
        secrets::set,
        secrets::remove,
        logins::challenge,
        logins::log_in,
        tokens::list,
        tokens::make,
        tokens::revoke,
        api::metrics,
        api::health,
        api::ready,
        document
    ),
    components(schemas(ProblemBody, JobSummary, model::Transfer))
)]
struct Api;

/// The document as text, which is the same for the life of the process.
static TEXT: LazyLock<String> = LazyLock::new(|| text().to_string());

/// This description.
#[utoipa::path(get, path = "/api/v1/openapi.json", security(()),
    responses((status = 200, body = Object)))]
pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
}

fn text() -> Value {
    // It has no map with keys that aren't text.
    let mut document = serde_json::to_value(Api::openapi()).unwrap_or_default();
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer",
            "description": "The token in the folder of the service."},
    });
    document["components"]["schemas"]["Job"] = transfers::schema();
    document["components"]["schemas"]["Submission"]["properties"]["transfers"]["items"] =
        json!({"$ref": "#/components/schemas/Job"});
    document["security"] = json!([{"token": []}]);
    if let Some(paths) = document["paths"].as_object_mut() {
        let operations = paths
            .iter_mut()
            .filter_map(|(path, item)| Some((path.clone(), item.as_object_mut()?)));
        for (path, item) in operations {
            for (method, operation) in item {
                set_words(operation);
                set_stream(operation);
                add_problems(&path, method, operation);
            }
        }
    }
    document
}

/// The changes that people can ask for.
const CHANGES: [&str; 4] = ["pause", "resume", "cancel", "retry"];

/// Says what a parameter can be, where its type doesn't.
fn set_words(operation: &mut Value) {
    // An index would add what is missing.
    let parameters = operation
        .get_mut("parameters")
        .and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        match parameter["name"].as_str() {
            Some("change") => parameter["schema"]["enum"] = json!(CHANGES),
            Some("at") => parameter["schema"] = transfers::place(),
            Some("If-Match") => {
                parameter["schema"] =
                    json!({"type": "string", "pattern": "^(\\*|\"[!#-+--~]*\")$"});
            }
            _ => set_range(&mut parameter["schema"]),
        }
    }
}

/// Says how large a number can be: the formats of OpenAPI have a sign.
fn set_range(schema: &mut Value) {
    let most = match schema["format"].as_str() {
        Some("int32") => json!(u32::MAX),
        Some("int64") => json!(u64::MAX),
        _ => return,
    };
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("format");
        schema.entry("maximum").or_insert(most);
    }
}

/// Leaves out the schema of a stream: that of one of its events isn't that of its text.
fn set_stream(operation: &mut Value) {
    let stream = operation.pointer_mut("/responses/200/content/text~1event-stream");
    if let Some(stream) = stream.and_then(Value::as_object_mut) {
        stream.remove("schema");
    }
}

/// Adds the problems that an operation can answer with.
fn add_problems(path: &str, method: &str, operation: &mut Value) {
    let mut statuses = vec![("503", "The service is ending, or busy.")];
    if operation["security"] != json!([{}]) || path.ends_with("/logins") {
        statuses.push(("401", "The request has no valid token."));
        statuses.push(("403", "The token or its user has no right to it."));
        statuses.push((
            "429",
            "Too many wrong passwords have come from this address.",
        ));
    }
    let parameters = operation["parameters"].as_array();
    let has_input = parameters.is_some_and(|parameters| !parameters.is_empty());
    let has_body = matches!(method, "post" | "put" | "patch");
    if has_input || has_body {
        statuses.push(("400", "It can't be read."));
        statuses.push((
            "422",
            "It can be read, and has a value that isn't possible.",
        ));
    }
    if path.contains('{') || path.ends_with("/places") {
        statuses.push(("404", "There is none."));
    }
    if path.ends_with("/manifest") {
        statuses.push(("409", "The job hasn't succeeded."));
    }
    if path.ends_with("/places") {
        statuses.push((
            "424",
            "The server that it is on can't be reached, or refuses.",
        ));
    }
    if method != "get" {
        statuses.push(("409", "It isn't possible in the state that things have."));
        statuses.push(("412", "It has changed since it was read."));
    }
    if has_body {
        statuses.push(("413", "It is too large."));
        statuses.push(("408", "It didn't come in time."));
    }
    for (status, description) in statuses {
        operation["responses"][status] = json!({
            "description": description,
            "content": {"application/problem+json":
                {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The routes of the interface as `routes.rs` has them: a method and a path.
    fn routes() -> BTreeSet<(String, String)> {
        let source = include_str!("routes.rs");
        let mut routes = BTreeSet::new();
        for call in source.split(".route(").skip(1) {
            let call = call.split("\n        .").next().unwrap_or(call);
            let path = call.split('"').nth(1).unwrap_or_default();
            let is_api = path.starts_with("/api/") || path.ends_with('z') || path == "/metrics";
            for method in ["get", "post", "put", "patch", "delete"] {
                if is_api && call.contains(&format!("{method}(")) {
                    let path = match (method, path) {
                        // The router has no path with two parameters in one part.
                        ("post", "/api/v1/jobs/{id}") => "/api/v1/jobs/{id}:{change}",
                        _ => path,
                    };
                    routes.insert((method.to_owned(), path.to_owned()));
                }
            }
        }
        routes
    }

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let document = text();
        let mut described = BTreeSet::new();
        let paths = document["paths"].as_object();
        for (path, item) in paths.into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                described.insert((method.clone(), path.clone()));
                assert!(operation["summary"].is_string(), "{method} {path}");
            }
        }
        assert!(described.len() > 9, "{described:?}");
        assert_eq!(described, routes());
        assert_eq!(document["openapi"], "3.1.0");
    }

    #[test]
    fn the_changes_are_those_that_people_can_ask_for() {
        let all = CHANGES.map(crate::state::Change::of_person);
        assert!(all.iter().all(Option::is_some));
    }

    /// Looks at a value and all that is in it.
    fn each(value: &Value, look: &mut impl FnMut(&str, &Value)) {
        for (name, value) in value.as_object().into_iter().flatten() {
            look(name, value);
            each(value, look);
        }
        for value in value.as_array().into_iter().flatten() {
            each(value, look);
        }
    }

    #[test]
    fn nothing_is_there_without_a_value() {
        each(&text(), &mut |name, value| {
            let is_value = matches!(name, "default" | "example" | "const");
            assert!(is_value || !value.is_null(), "{name}");
        });
    }

    #[test]
    fn numbers_of_parameters_have_the_range_of_their_types() {
        let mut most = BTreeSet::new();
        each(&text(), &mut |name, parameters| {
            if name == "parameters" {
                for parameter in parameters.as_array().into_iter().flatten() {
                    let schema = &parameter["schema"];
                    if schema["type"].to_string().contains("integer") {
                        assert!(schema["format"].is_null(), "{parameter}");
                        most.insert(schema["maximum"].as_u64());
                    }
                }
            }
        });
        assert_eq!(most, [1000, u64::from(u32::MAX), u64::MAX].map(Some).into());
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = text();
        let text = document.to_string();
        let names = text.split("#/components/schemas/").skip(1);
        for name in names.filter_map(|rest| rest.split('"').next()) {
            assert!(
                document["components"]["schemas"][name].is_object(),
                "{name}"
            );
        }
    }
}
