//! The page of servers: between which ones jobs copy, and what limits that.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Html;

use super::{PAGES, PageProblem, counted, limit, rendered, shown, size};
use crate::access::User;
use crate::api::known_links;
use crate::model::{LinkState, Links, ServerOutage};
use crate::shared::Shared;

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    links: Vec<LinkState>,
    outages: Vec<ServerOutage>,
}

impl ServersPage {
    fn section(&self) -> &'static str {
        "/servers"
    }

    fn failures(outage: &ServerOutage) -> String {
        counted(outage.failures as usize, "failure", "failures")
    }

    fn title(link: &LinkState) -> String {
        let name = |server: &str| match server {
            "" => "this machine".to_owned(),
            server => server.to_owned(),
        };
        format!("{} \u{2192} {}", name(&link.source), name(&link.target))
    }
}

/// `GET /servers`: what the scheduler knows of servers.
pub(crate) async fn servers(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Result<Html<String>, PageProblem> {
    let Links { links, outages } = known_links(&shared, &user).await?;
    Ok(rendered(&ServersPage { links, outages })?)
}
