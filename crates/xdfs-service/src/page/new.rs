//! The form of a new transfer: both sides are browsed, then what will happen is shown, then it is
//! started. Nothing of it needs scripts.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::{Html, Redirect};
use serde::Deserialize;
use xdfs::settings::size::parse_rate;
use xdfs::{
    Code, Fault, FileJob, Job, JobPlace, RetryPolicy, SyncJob, SyncOptions, TransferOptions,
    TransferParameters, TreeJob, TreeOptions, Way,
};

use super::{PAGES, PageProblem, counted, last_name, rendered, size};
use crate::access::{User, digest, random};
use crate::api::{browse, check_rights};
use crate::failure::Failure;
use crate::model::JobFilter;
use crate::places::{PlaceEntry, PlaceKind, PlaceListing};
use crate::problem::Problem;
use crate::shared::Shared;
use crate::spec::Submission;
use crate::store::Idempotency;

/// Jobs whose places are offered, and most places that are.
const RECENT_JOBS: u32 = 50;
const RECENT_MAX: usize = 8;
/// Names that are shown of those that are copied.
const NAMES_SHOWN: usize = 12;

/// A side of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Source,
    Target,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Source => "From",
            Self::Target => "To",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Source => {
                "A path on the machine of the service, or a URL such as xdfs://host/data"
            }
            Self::Target => "A directory: one of the two sides is on a server",
        }
    }

    fn is_source(self) -> bool {
        self == Self::Source
    }
}

/// The entries of a side.
enum Listing {
    /// No place was named. These were used before.
    Recent(Vec<String>),
    Failed(Failure),
    Read(PlaceListing),
}

#[derive(Template)]
#[template(path = "pane.html")]
struct Pane {
    side: Side,
    at: String,
    listing: Listing,
    /// The place of the other side, for links.
    other: String,
    picked: Vec<String>,
}

impl Pane {
    /// The page with this side at another place.
    fn link(&self, at: &str) -> String {
        let other = match self.side {
            Side::Source => Side::Target,
            Side::Target => Side::Source,
        };
        let query = [(self.side.name(), at), (other.name(), &self.other)];
        format!("/new?{}", encoded(&query))
    }

    fn pick(&self, entry: &PlaceEntry) -> String {
        let kind = match entry.kind {
            PlaceKind::Directory => "tree",
            _ => "file",
        };
        format!("{kind}:{}", entry.at)
    }

    /// The directory in words.
    fn summary(&self) -> String {
        let Listing::Read(listing) = &self.listing else {
            return String::new();
        };
        let count = |kind| {
            let of_kind = |entry: &&PlaceEntry| (entry.kind == PlaceKind::Directory) == kind;
            listing.entries.iter().filter(of_kind).count()
        };
        let directories = counted(count(true), "directory", "directories");
        let files = counted(count(false), "file", "files");
        format!("{}: {directories}, {files}", listing.at)
    }
}

impl PlaceKind {
    fn is_directory(self) -> bool {
        self == Self::Directory
    }

    fn is_copied(self) -> bool {
        matches!(self, Self::Directory | Self::File | Self::Link)
    }
}

/// A query of a URL.
pub(super) fn encoded(pairs: &[(&str, &str)]) -> String {
    let part = |text: &str| {
        let mut part = String::new();
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    part.push(char::from(byte));
                }
                byte => part.push_str(&format!("%{byte:02X}")),
            }
        }
        part
    };
    let pairs = pairs.iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{}={}", part(name), part(value)))
        .collect();
    pairs.join("&")
}

#[derive(Template)]
#[template(path = "new.html")]
struct NewPage {
    panes: [Pane; 2],
    recent: Vec<String>,
    options: Options,
    problem: Option<Failure>,
}

#[derive(Template)]
#[template(path = "review.html")]
struct Review {
    lines: Vec<String>,
    /// The submission as JSON.
    job: String,
    key: String,
    /// The form again.
    back: String,
}

impl NewPage {
    fn section(&self) -> &'static str {
        "/new"
    }
}

impl Review {
    fn section(&self) -> &'static str {
        "/new"
    }
}

/// The fields of the form, as they are written.
#[derive(Clone, Debug, Default)]
struct Options {
    source: String,
    target: String,
    /// Each a kind and a place.
    picks: Vec<(String, String)>,
    sync: bool,
    overwrite: bool,
    label: String,
    rate: String,
    retries: String,
}

impl Options {
    fn read(fields: Vec<(String, String)>) -> Self {
        let mut options = Self::default();
        for (name, value) in fields {
            let text = value.trim().to_owned();
            match name.as_str() {
                "source" => options.source = text,
                "target" => options.target = text,
                "kind" => options.sync = text == "sync",
                "overwrite" => options.overwrite = true,
                "label" => options.label = text,
                "rate" => options.rate = text,
                "retries" => options.retries = text,
                "pick" => {
                    if let Some((kind, place)) = value.split_once(':') {
                        options.picks.push((kind.to_owned(), place.to_owned()));
                    }
                }
                // Others mean nothing.
                _ => {}
            }
        }
        options
    }

    /// Whether one of the folded options isn't as it is by default.
    fn is_open(&self) -> bool {
        let texts = [&self.label, &self.rate, &self.retries];
        self.overwrite || texts.iter().any(|text| !text.is_empty())
    }

    /// The form with these options.
    fn link(&self) -> String {
        let kind = if self.sync { "sync" } else { "copy" };
        let mut pairs = vec![
            ("source", self.source.as_str()),
            ("target", &self.target),
            ("kind", kind),
            ("label", &self.label),
            ("rate", &self.rate),
            ("retries", &self.retries),
        ];
        if self.overwrite {
            pairs.push(("overwrite", "yes"));
        }
        let picks: Vec<_> = self
            .picks
            .iter()
            .map(|(kind, place)| format!("{kind}:{place}"))
            .collect();
        // A longer address isn't taken; they are ticked again then.
        if picks.iter().map(String::len).sum::<usize>() < 4000 {
            pairs.extend(picks.iter().map(|pick| ("pick", pick.as_str())));
        }
        format!("/new?{}", encoded(&pairs))
    }

    fn submission(&self, shape: &Shape) -> Result<Submission, Fault> {
        let invalid = |field: &str, cause: &str| {
            Fault::new(Code::InvalidArgument, "accept the field", cause).path(field)
        };
        let rate = match self.rate.as_str() {
            "" => None,
            rate => Some(parse_rate(rate).map_err(|cause| invalid("bytes per second", &cause))?),
        };
        let parameters = TransferParameters {
            overwrite: self.overwrite,
            rate_bytes_per_s_max: rate,
            ..TransferParameters::default()
        };
        let tree = TreeOptions {
            parameters,
            ..TreeOptions::default()
        };
        let target: JobPlace = self.target.parse()?;
        let copy = |kind: &str, source: &str| -> Result<Job, Fault> {
            let (source, target, way) = (source.parse()?, target.clone(), Way::default());
            Ok(match kind {
                "tree" => Job::Tree(TreeJob {
                    source,
                    target,
                    way,
                    options: tree.clone(),
                }),
                _ => Job::File(FileJob {
                    source,
                    target,
                    way,
                    options: TransferOptions {
                        parameters,
                        ..TransferOptions::default()
                    },
                    retry: RetryPolicy::default(),
                }),
            })
        };
        let transfers = match (self.sync, self.picks.as_slice()) {
            (true, []) => vec![Job::Sync(SyncJob {
                source: self.source.parse()?,
                target: target.clone(),
                way: Way::default(),
                options: SyncOptions {
                    tree: tree.clone(),
                    ..SyncOptions::default()
                },
            })],
            (true, _) => {
                let cause = "a synchronisation is of a whole directory";
                return Err(invalid("source", cause).hint("open that directory, and tick nothing"));
            }
            (false, []) if shape.source_is_directory => vec![copy("tree", &self.source)?],
            (false, []) => vec![copy("file", &self.source)?],
            (false, picks) if picks.len() > 1 && !shape.target_is_directory => {
                let cause =
                    "there is no such directory, and several things are to be copied into it";
                let fault = invalid("target", cause);
                return Err(fault.hint("make it first, with xdfs mkdir or mkdir"));
            }
            (false, picks) => {
                let picks = picks.iter();
                picks
                    .map(|(kind, place)| copy(kind, place))
                    .collect::<Result<_, _>>()?
            }
        };
        let mut submission = Submission::new(&self.label, transfers);
        if !self.retries.is_empty() {
            let retries = self.retries.parse();
            submission.retries_max =
                retries.map_err(|_| invalid("retries", "it isn't a whole number"))?;
        }
        submission.specs()?;
        Ok(submission)
    }

    /// The job in words.
    fn lines(&self, shape: &Shape, submission: &Submission) -> Vec<String> {
        let mut lines = Vec::new();
        if self.sync {
            lines.push(format!("Make {} like {}.", self.target, self.source));
            lines.push("Files that differ are replaced, and missing ones are copied.".to_owned());
            lines.push("Nothing is deleted.".to_owned());
        } else {
            match self.picks.as_slice() {
                [] => {
                    let kind = match shape.source_is_directory {
                        true => "directory",
                        false => "file",
                    };
                    lines.push(format!("Copy the {kind} {}", self.source));
                }
                picks => {
                    let of = |kind: &str| picks.iter().filter(|(one, _)| one == kind).count();
                    let (trees, files) = (of("tree"), picks.len() - of("tree"));
                    let kinds: Vec<_> = [
                        (trees, counted(trees, "directory", "directories")),
                        (files, counted(files, "file", "files")),
                    ]
                    .into_iter()
                    .filter_map(|(count, text)| (count > 0).then_some(text))
                    .collect();
                    let kinds = kinds.join(" and ");
                    lines.push(format!("Copy {kinds} from {}:", self.source));
                    let names: Vec<_> = picks
                        .iter()
                        .take(NAMES_SHOWN)
                        .map(|(_, place)| last_name(place))
                        .collect();
                    let more = match picks.len().checked_sub(NAMES_SHOWN) {
                        None | Some(0) => String::new(),
                        Some(more) => format!(", and {more} more"),
                    };
                    lines.push(names.join(", ") + &more);
                }
            }
            lines.push(match shape.target_is_directory {
                true => format!("into the directory {}.", self.target),
                false => format!("to {}, which is made.", self.target),
            });
            lines.push(match self.overwrite {
                true => "What exists there already is replaced.".to_owned(),
                false => "What exists there already stays as it is: it is skipped if it is the \
                          same, and counts as failed if not."
                    .to_owned(),
            });
        }
        if !self.rate.is_empty() {
            lines.push(format!("At most {} bytes per second.", self.rate));
        }
        lines.push(format!(
            "If a server is down or busy, it is tried again, up to {} times without progress.",
            submission.retries_max
        ));
        lines
    }
}

/// The kinds of the places.
struct Shape {
    source_is_directory: bool,
    target_is_directory: bool,
}

async fn shape(shared: &Shared, user: &User, options: &Options) -> Result<Shape, Problem> {
    for (name, place) in [("source", &options.source), ("target", &options.target)] {
        if place.is_empty() {
            let fault = Fault::new(Code::InvalidArgument, "accept the field", "it is empty");
            return Err(fault.path(name).hint("write a place, or open one").into());
        }
    }
    let is_directory = |listing: Result<PlaceListing, Problem>| match listing {
        Ok(_) => Ok(true),
        Err(problem) if problem.fault().code == Code::NotDirectory => Ok(false),
        Err(problem) => Err(problem),
    };
    let source = browse(shared, user, &options.source).await;
    let target = browse(shared, user, &options.target).await;
    let target_is_missing =
        matches!(&target, Err(problem) if problem.fault().code == Code::NotFound);
    Ok(Shape {
        source_is_directory: is_directory(source)?,
        target_is_directory: !target_is_missing && is_directory(target)?,
    })
}

async fn recent(shared: &Shared, user: &User) -> Result<Vec<String>, Problem> {
    let all = JobFilter::new(user.only(), None, None)?;
    let mut places = Vec::new();
    for job in shared.store.jobs(&all, None, RECENT_JOBS).await? {
        for place in [job.target, job.source] {
            if places.len() < RECENT_MAX && !places.contains(&place) {
                places.push(place);
            }
        }
    }
    Ok(places)
}

async fn pane(
    shared: &Shared,
    user: &User,
    side: Side,
    options: &Options,
) -> Result<Pane, Problem> {
    let (at, other) = match side {
        Side::Source => (&options.source, &options.target),
        Side::Target => (&options.target, &options.source),
    };
    let listing = match at.as_str() {
        "" => Listing::Recent(recent(shared, user).await?),
        at => match browse(shared, user, at).await {
            Ok(listing) => Listing::Read(listing),
            Err(problem) => Listing::Failed(problem.fault().into()),
        },
    };
    let picks = options.picks.iter();
    Ok(Pane {
        side,
        at: at.clone(),
        listing,
        other: other.clone(),
        picked: picks.map(|(_, place)| place.clone()).collect(),
    })
}

async fn form(
    shared: &Shared,
    user: &User,
    options: Options,
    problem: Option<Failure>,
) -> Result<Html<String>, PageProblem> {
    let panes = [
        pane(shared, user, Side::Source, &options).await?,
        pane(shared, user, Side::Target, &options).await?,
    ];
    Ok(rendered(&NewPage {
        panes,
        recent: recent(shared, user).await?,
        options,
        problem,
    })?)
}

fn bad_fields(error: impl std::fmt::Display) -> Problem {
    let fault = Fault::new(Code::InvalidArgument, "read the form", error.to_string());
    Problem::with_status(StatusCode::BAD_REQUEST, fault)
}

type Fields = Vec<(String, String)>;

/// `GET /new`: the form.
pub(crate) async fn new(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    fields: Result<Query<Fields>, QueryRejection>,
) -> Result<Html<String>, PageProblem> {
    let Query(fields) = fields.map_err(bad_fields)?;
    let is_first = fields.is_empty();
    let mut options = Options::read(fields);
    if is_first {
        options.source = Shared::home();
    }
    form(&shared, &user, options, None).await
}

/// The query of [`one_pane`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaneQuery {
    side: Side,
    at: String,
}

/// `GET /new/pane`: the entries of one side.
pub(crate) async fn one_pane(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<PaneQuery>, QueryRejection>,
) -> Result<Html<String>, PageProblem> {
    let Query(PaneQuery { side, at }) = query.map_err(bad_fields)?;
    let mut options = Options::default();
    match side {
        Side::Source => options.source = at,
        Side::Target => options.target = at,
    }
    Ok(rendered(&pane(&shared, &user, side, &options).await?)?)
}

/// `POST /new/review`: what will happen. Nothing does yet.
pub(crate) async fn review(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    fields: Result<Form<Fields>, FormRejection>,
) -> Result<Html<String>, PageProblem> {
    let Form(fields) = fields.map_err(bad_fields)?;
    let options = Options::read(fields);
    let shape = shape(&shared, &user, &options).await;
    let checked = shape.and_then(|shape| Ok((options.submission(&shape)?, shape)));
    let (submission, shape) = match checked {
        Ok(checked) => checked,
        Err(problem) => {
            let failure = problem.fault().into();
            return form(&shared, &user, options, Some(failure)).await;
        }
    };
    let job = serde_json::to_string(&submission)
        .map_err(|error| Fault::new(Code::InvalidArgument, "write the job", error.to_string()))?;
    Ok(rendered(&Review {
        lines: options.lines(&shape, &submission),
        job,
        key: random::<16>()?,
        back: options.link(),
    })?)
}

/// The fields of [`start`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartFields {
    job: String,
    key: String,
}

/// `POST /new`: submits the job that was shown. Sent twice, it is one job.
pub(crate) async fn start(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    fields: Result<Form<StartFields>, FormRejection>,
) -> Result<Redirect, PageProblem> {
    let Form(StartFields { job, key }) = fields.map_err(bad_fields)?;
    let submission: Submission = serde_json::from_str(&job).map_err(bad_fields)?;
    shared.webhooks.check(submission.webhook.as_deref())?;
    check_rights(&shared, &user, &submission).await?;
    let idempotency = Idempotency {
        key: &key,
        digest: &digest(&job),
    };
    let id = shared
        .submit(&submission, &user.name, Some(idempotency))
        .await?
        .id;
    Ok(Redirect::to(&format!("/jobs/{id}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(fields: &[(&str, &str)]) -> Options {
        let fields = fields.iter();
        Options::read(
            fields
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    const BOTH: Shape = Shape {
        source_is_directory: true,
        target_is_directory: true,
    };

    #[test]
    fn what_is_ticked_is_copied_and_without_a_tick_all_of_it() {
        let places = [("source", "/data"), ("target", "xdfs://h/a")];
        let whole = options(&places);
        let submission = whole.submission(&BOTH);
        let submission = submission.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(matches!(submission.transfers[..], [Job::Tree(_)]));
        let picks = [("pick", "tree:/data/runs"), ("pick", "file:/data/a:b")];
        let picked = options(&[&places[..], &picks[..]].concat());
        let submission = picked.submission(&BOTH);
        let submission = submission.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(matches!(
            submission.transfers[..],
            [Job::Tree(_), Job::File(_)]
        ));
        let lines = picked.lines(&BOTH, &submission).join("\n");
        assert!(
            lines.contains("1 directory and 1 file from /data:\nruns, a:b\ninto the directory"),
            "{lines}"
        );
        // Two files would become one.
        let no_target = Shape {
            target_is_directory: false,
            ..BOTH
        };
        let path = |submission: Result<Submission, Fault>| {
            submission
                .err()
                .map(|fault| String::from_utf8_lossy(&fault.path).into_owned())
        };
        assert_eq!(
            path(picked.submission(&no_target)).as_deref(),
            Some("target")
        );
        let sync = options(&[&places[..], &picks[..], &[("kind", "sync")]].concat());
        assert_eq!(path(sync.submission(&BOTH)).as_deref(), Some("source"));
        for bad in [("rate", "much"), ("retries", "-1"), ("target", "/here")] {
            let fields = [&places[..], &[bad]].concat();
            assert!(options(&fields).submission(&BOTH).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_form_can_be_linked() {
        let fields = [
            ("source", "/a b&c=d"),
            ("target", "xdfs://h/\u{e9}"),
            ("pick", "file:/a b&c=d/x"),
        ];
        let link = options(&fields).link();
        assert!(
            link.starts_with("/new?source=/a%20b%26c%3Dd&target=xdfs%3A//h/%C3%A9&kind=copy"),
            "{link}"
        );
        assert!(link.ends_with("&pick=file%3A/a%20b%26c%3Dd/x"), "{link}");
    }
}
