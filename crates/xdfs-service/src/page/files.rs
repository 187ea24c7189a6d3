//! The page of the files of a job.

use std::sync::Arc;

use askama::Template;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Html;
use serde::Deserialize;

use super::new::encoded;
use super::{PAGES, PageProblem, ROWS_OF_PAGE, limit, rendered, size};
use crate::api::{Parameters, bad_query};
use crate::id::JobId;
use crate::listed::{Cursor, JobFile};
use crate::problem::Problem;
use crate::shared::Shared;

#[derive(Template)]
#[template(path = "files.html")]
struct FilesPage {
    id: JobId,
    files: Vec<JobFile>,
    /// The address of the page that follows.
    next: Option<String>,
}

impl FilesPage {
    fn section(&self) -> &'static str {
        "/"
    }

    fn path(file: &JobFile) -> String {
        String::from_utf8_lossy(file.path.as_bytes()).into_owned()
    }
}

/// The query of [`files`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FilesQuery {
    after: Option<String>,
}

/// `GET /jobs/{id}/files`: the files of a job.
pub(crate) async fn files(
    State(shared): State<Arc<Shared>>,
    path: Result<Parameters<String>, Problem>,
    query: Result<Query<FilesQuery>, QueryRejection>,
) -> Result<Html<String>, PageProblem> {
    let Parameters(id) = path?;
    let id: JobId = id.parse()?;
    let Query(FilesQuery { after }) = query.map_err(bad_query)?;
    let after: Option<Cursor> = after.map(|after| after.parse()).transpose()?;
    let after = after.unwrap_or_default();
    let page = shared.store.page_of_files(id, &after, ROWS_OF_PAGE);
    let (files, next) = page.await?;
    let next = next.map(|after| {
        let after = after.to_string();
        format!("/jobs/{id}/files?{}", encoded(&[("after", &after)]))
    });
    Ok(rendered(&FilesPage { id, files, next })?)
}
