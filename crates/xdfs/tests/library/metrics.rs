//! The metrics of a server, as its readers get them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use xdfs::metrics::{MetricsSettings, Scrape};
use xdfs::{Call, Code, GridftpSettings, LocalPlace, ServerBuilder, TransferOptions};
use xdfs_testkit::tree::TempTree;
use xdfs_testkit::wait;

use crate::support::{PATIENCE, Serving, client};

const PAGE: &str = include_str!("../../../../docs/metrics.md");
const BYTES: usize = 3 << 20;

/// A server on `root` with metrics, and where they are.
fn serving(root: &Path, change: impl FnOnce(&mut ServerBuilder)) -> (Serving, String) {
    let mut builder = ServerBuilder {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        root: root.to_owned(),
        metrics: Some(MetricsSettings {
            listen: MetricsSettings::address("127.0.0.1:0").unwrap(),
            open: false,
        }),
        ..ServerBuilder::default()
    };
    change(&mut builder);
    let server = builder.bind().unwrap();
    let address = server.metrics_addresses()[0].to_string();
    (Serving::run(server), address)
}

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    body.to_owned()
}

fn scrape(address: &str) -> Scrape {
    Scrape::read(&get(address)).unwrap()
}

/// Waits until the sum of these samples is `expected`: sessions add to them several times a second.
#[track_caller]
fn until(address: &str, name: &str, labels: &[(&str, &str)], expected: f64) {
    let mut last = None;
    let came = wait::until(PATIENCE, || {
        last = scrape(address).sum(name, labels);
        last == Some(expected)
    });
    assert!(came, "{name} {labels:?}: {last:?} instead of {expected}");
}

#[test]
fn what_a_server_does_is_counted() {
    let tree = TempTree::new(1).unwrap();
    let content = vec![7; BYTES];
    std::fs::write(tree.join("source"), &content).unwrap();
    std::fs::create_dir(tree.join("root")).unwrap();
    let (serving, address) = serving(&tree.join("root"), |_| {});
    until(&address, "xdfs_server_sessions", &[("door", "xdfs")], 0.0);

    let client = client(serving.addr, |_| {});
    let source = LocalPlace::Path(tree.join("source"));
    let options = TransferOptions::default();
    let upload = client.upload(&source, b"/copy", &options).unwrap();
    upload.wait().unwrap();
    let target = LocalPlace::Path(tree.join("again"));
    client
        .download(b"/copy", &target, &options)
        .unwrap()
        .wait()
        .unwrap();
    let missing = Call::Stat {
        path: b"/missing".to_vec(),
        follow: false,
    };
    let fault = client.call(missing).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    let missing = LocalPlace::Path(tree.join("missing"));
    let failed = client.download(b"/missing", &missing, &options).unwrap();
    assert_eq!(failed.wait().unwrap_err().code, Code::NotFound);

    let door = ("door", "xdfs");
    for direction in ["in", "out"] {
        let labels = [door, ("direction", direction)];
        let bytes = BYTES as f64;
        until(&address, "xdfs_server_payload_bytes_total", &labels, bytes);
        until(&address, "xdfs_server_transfers_total", &labels, 1.0);
        until(&address, "xdfs_server_transfers_running", &labels, 0.0);
    }
    until(&address, "xdfs_server_transfers_limited_total", &[], 2.0);
    for what in ["call", "transfer"] {
        let labels = [door, ("what", what), ("code", "not-found")];
        until(&address, "xdfs_server_failures_total", &labels, 1.0);
    }
    let now = scrape(&address);
    assert_eq!(now.sum("xdfs_server_sessions", &[door]), Some(1.0));
    assert_eq!(now.sum("xdfs_server_sessions_begun_total", &[]), Some(1.0));
    assert!(now.sum("xdfs_server_channels", &[]) >= Some(1.0));
    assert!(now.sum("xdfs_server_channels_opened_total", &[]) >= Some(1.0));
    let work = [("activity", "work")];
    assert!(now.sum("xdfs_server_session_seconds_total", &work) > Some(0.0));
    client.close();
    until(&address, "xdfs_server_sessions", &[door], 0.0);
    until(&address, "xdfs_server_channels", &[door], 0.0);
    until(&address, "xdfs_server_memory_bytes", &[], 0.0);
}

/// The rows of the tables of a page, from a heading to the next one.
fn documented(heading: &str) -> BTreeMap<String, (String, BTreeSet<String>, String)> {
    let (_, rest) = PAGE.split_once(heading).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, help, _] = cells[..] else {
            panic!("{row}");
        };
        let labels = labels.split_whitespace();
        let labels = labels.map(|label| label.trim_matches('`').to_owned());
        let name = name.trim_matches('`').to_owned();
        (name, (kind.to_owned(), labels.collect(), help.to_owned()))
    })
    .collect()
}

/// The same of a text of metrics.
fn answered(text: &str) -> BTreeMap<String, (String, BTreeSet<String>, String)> {
    let scrape = Scrape::read(text).unwrap();
    let line = |kind: &str, name: &str| {
        let beginning = format!("# {kind} {name} ");
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(&beginning).map(str::to_owned))
    };
    let names = text.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some(name)
    });
    names
        .map(|name| {
            let total = format!("{name}_total");
            let samples = scrape.of(name).chain(scrape.of(&total));
            let labels = samples.flat_map(|sample| sample.labels.keys().cloned());
            let help = line("HELP", name).unwrap();
            let row = (line("TYPE", name).unwrap(), labels.collect(), help);
            (name.to_owned(), row)
        })
        .collect()
}

#[test]
fn the_page_has_the_names_that_a_server_answers() {
    let tree = TempTree::new(2).unwrap();
    let (serving, address) = serving(&tree.join(""), |builder| {
        let mut gridftp = GridftpSettings::default();
        gridftp.listen.port = 0;
        builder.doors.push(Arc::new(gridftp));
    });
    // So that there is a failure.
    let client = client(serving.addr, |_| {});
    let missing = LocalPlace::Path(tree.join("missing"));
    let options = TransferOptions::default();
    let failed = client.download(b"/missing", &missing, &options).unwrap();
    failed.wait().unwrap_err();
    let mut rows = documented("## Of a server\n");
    let of_both = documented("## Of both\n");
    assert!(rows.len() > 10 && of_both.len() > 3);
    rows.extend(of_both);
    let answered = answered(&get(&address));
    if !cfg!(target_os = "linux") {
        rows.retain(|name, _| answered.contains_key(name));
    }
    assert_eq!(answered, rows);
}

/// Names of users, paths and peers would make as many samples as clients like.
#[test]
fn no_label_has_a_value_that_clients_choose() {
    let tree = TempTree::new(3).unwrap();
    let (serving, address) = serving(&tree.join(""), |_| {});
    let client = client(serving.addr, |_| {});
    let count = |of: &Scrape| of.samples.len();
    let mut before = None;
    for name in ["alpha-name", "beta-name", "gamma-name"] {
        let missing = LocalPlace::Path(tree.join("missing"));
        let path = format!("/{name}").into_bytes();
        let failed = client.download(&path, &missing, &TransferOptions::default());
        failed.unwrap().wait().unwrap_err();
        let now = scrape(&address);
        let text = get(&address);
        assert!(!text.contains(name), "{text}");
        assert_eq!(*before.get_or_insert_with(|| count(&now)), count(&now));
    }
}

/// The metrics in an expression of Prometheus, with the labels in braces behind them.
fn metrics_in(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        rest = &rest[at..];
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if !["xdfs_", "process_"]
            .iter()
            .any(|own| word.starts_with(own))
        {
            continue;
        }
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            let (inner, behind) = inner.split_once('}').unwrap();
            let each = inner
                .split(',')
                .map(|label| label.split(['=', '!']).next().unwrap());
            labels.extend(each.map(str::to_owned));
            rest = behind;
        }
        found.push((word.to_owned(), labels));
    }
    found
}

#[test]
fn the_dashboard_has_documented_names_only() {
    const DASHBOARD: &str = include_str!("../../../../contrib/grafana/xdfs.json");
    let mut rows = documented("## Of a server\n");
    rows.extend(documented("## Of the service\n"));
    rows.extend(documented("## Of both\n"));
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut used, mut waiting) = (BTreeSet::new(), vec![&dashboard]);
    while let Some(value) = waiting.pop() {
        match value {
            serde_json::Value::Array(all) => waiting.extend(all),
            serde_json::Value::Object(fields) => {
                waiting.extend(fields.values());
                let expression = fields.get("expr").or_else(|| fields.get("definition"));
                let Some(expression) = expression.and_then(|own| own.as_str()) else {
                    continue;
                };
                let metrics = metrics_in(expression);
                assert!(!metrics.is_empty(), "{expression}");
                for (name, labels) in metrics {
                    let base = name.strip_suffix("_total").unwrap_or(&name);
                    let row = rows.get(base);
                    let (kind, own, _) = row.unwrap_or_else(|| panic!("{name}: {expression}"));
                    assert_eq!(kind == "counter", base != name, "{expression}");
                    // What Prometheus adds.
                    let unknown = labels
                        .iter()
                        .find(|l| *l != "instance" && !own.contains(*l));
                    assert_eq!(unknown, None, "{expression}");
                    used.insert(base.to_owned());
                }
            }
            _ => {}
        }
    }
    assert!(used.len() > 30, "{used:?}");
}
