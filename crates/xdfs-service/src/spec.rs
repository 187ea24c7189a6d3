//! Submissions: what a client wants to be done, as it writes it.

mod contradictions;
mod url;

use serde::{Deserialize, Deserializer, Serialize};
use xdfs::{Code, Fault, Job, JobPlace, RemotePlace};

use self::contradictions::contradiction;
pub(crate) use self::url::check_url;
use crate::rule::Rule;
use crate::scheduler::Link;
use crate::time::{Moment, Time};
use crate::whose::check_server_of_user;

/// Version of the form of a submission.
const VERSION: u32 = 1;
/// Most transfers of a job.
const TRANSFERS_MAX: usize = 10_000;
/// Retries in a row without progress, where a submission doesn't say: about a day.
const RETRIES_MAX: u32 = 150;
/// Most characters of a label.
pub(crate) const LABEL_MAX: usize = 200;
/// The highest priority, and without its sign the lowest one.
const PRIORITY_MAX: u8 = 10;
/// Most bytes of a place as it is shown: more than any system accepts.
const PLACE_BYTES_MAX: usize = 8192;

/// A job as a client submits it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Version of this form: 1.
    #[schema(minimum = 1, maximum = 1)]
    pub version: u32,
    /// A line for people. Empty for none.
    #[serde(default)]
    #[schema(max_length = 200, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    pub label: String,
    /// From -10 to 10: a job of a higher priority is taken first.
    #[serde(default)]
    #[schema(minimum = -10, maximum = 10)]
    pub priority: i8,
    /// No worker takes it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,3}[mhd]$")]
    pub starts_at: Option<Moment>,
    /// A job that isn't done by then has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,3}[mhd]$")]
    pub deadline: Option<Moment>,
    /// The time at which it is deleted, if it has ended before. Otherwise, and without one, the
    /// service keeps it as long as it keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,3}[mhd]$")]
    pub keep_until: Option<Moment>,
    /// Keep a list of the files with their BLAKE3, and make a manifest of it when all have arrived.
    #[serde(default)]
    pub manifest: bool,
    /// A URL that is sent the end of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uri", pattern = "^https://[a-z][a-z0-9.-]*[a-z]/[a-z0-9/]*$")]
    pub webhook: Option<String>,
    /// Most retries of the job in a row without progress, with pauses that grow from seconds to ten
    /// minutes; 0 for none. Those of a broken connection within a copy come before, and aren't
    /// counted.
    #[serde(default = "retries_max")]
    pub retries_max: u32,
    /// Names of secrets of the user: the job logs in with them. Those that are set for a server
    /// needn't be named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The transfers, done one after the other. One that fails doesn't stop the others.
    #[serde(default)]
    #[schema(value_type = Vec<Object>, required, min_items = 1, max_items = 10_000)]
    pub transfers: Vec<Job>,
}

/// A transfer as the database has it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) kind: &'static str,
    pub(crate) source: String,
    pub(crate) target: String,
    /// The servers of both.
    pub(crate) link: Link,
    /// [`Job::to_json`].
    pub(crate) text: String,
}

fn retries_max() -> u32 {
    RETRIES_MAX
}

impl Submission {
    /// A submission of these transfers.
    #[must_use]
    pub fn new(label: impl Into<String>, transfers: Vec<Job>) -> Self {
        Self {
            version: VERSION,
            label: label.into(),
            priority: 0,
            starts_at: None,
            deadline: None,
            keep_until: None,
            manifest: false,
            webhook: None,
            retries_max: RETRIES_MAX,
            secrets: Vec::new(),
            transfers,
        }
    }

    /// Checks that a user may submit it, who may be an administrator or not.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`] with the place that the user may not use.
    pub(crate) fn check_for(&self, is_administrator: bool) -> Result<(), Fault> {
        match is_administrator {
            true => Ok(()),
            false => self.transfers.iter().try_for_each(check_for_user),
        }
    }

    /// The places of its transfers on servers.
    pub(crate) fn servers(&self) -> Vec<&RemotePlace> {
        let places = self.transfers.iter().filter_map(places).flatten();
        let servers = places.filter_map(|(_, place)| match place {
            JobPlace::Server(server) => Some(server),
            _ => None,
        });
        servers.collect()
    }

    /// Checks what can be checked without places or servers.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the field that doesn't suit a service.
    pub(crate) fn specs(&self) -> Result<Vec<Spec>, Fault> {
        self.check()?;
        let count = self.transfers.len();
        if count == 0 || count > TRANSFERS_MAX {
            let cause = format!("there are {count}, and a job has 1 to {TRANSFERS_MAX}");
            return Err(invalid("transfers", &cause)
                .hint("submit a longer list as lines (application/x-ndjson)"));
        }
        let transfers = self.transfers.iter().enumerate();
        transfers
            .map(|(index, job)| {
                let text = job.to_json()?;
                let field = |name: &str| format!("transfers[{index}].{name}");
                spec(job, text, self.manifest, field)
            })
            .collect()
    }

    /// Checks all but the transfers.
    ///
    /// # Errors
    /// As [`Self::specs`].
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.version != VERSION {
            let cause = format!("its version is {}, and this service knows 1", self.version);
            return Err(Fault::new(Code::Unsupported, "read the job", cause));
        }
        check_label(&self.label)?;
        check_priority(self.priority)?;
        if let Some(url) = &self.webhook {
            check_url(url)?;
        }
        Ok(())
    }
}

/// The times of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) starts_at: Option<Time>,
    pub(crate) deadline: Option<Time>,
    pub(crate) keep_until: Option<Time>,
}

impl Submission {
    /// Its times, if it is submitted now.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the field that contradicts the clock or another one.
    pub(crate) fn times(&self, now: Time) -> Result<Times, Fault> {
        let starts_at = self.starts_at.map(|moment| moment.from(now));
        let deadline = time_to_come("deadline", self.deadline, now)?;
        let keep_until = time_to_come("keep_until", self.keep_until, now)?;
        if let (Some(starts_at), Some(deadline)) = (starts_at, deadline)
            && deadline <= starts_at
        {
            return Err(invalid("deadline", "it is not after starts_at"));
        }
        Ok(Times {
            starts_at,
            deadline,
            keep_until,
        })
    }
}

/// A schedule as a client submits it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSubmission {
    /// The rule of its times: an interval of a minute or more, such as `6h`, or the five fields of
    /// cron and perhaps a time zone, such as `30 2 * * 1-5 Europe/Berlin`.
    #[schema(pattern = "^[1-9][0-9]{0,3}[hd]$")]
    pub every: String,
    /// The rule begins here; otherwise at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,3}[mhd]$")]
    pub starts_at: Option<Moment>,
    /// What is submitted each time. It has no `starts_at`, and its other times are durations.
    pub job: Submission,
}

impl ScheduleSubmission {
    /// Checks what can be checked. Returns the rule, the first time, and the transfers of a job.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the field.
    pub(crate) fn check(&self, now: Time) -> Result<(Rule, Time, Vec<Spec>), Fault> {
        let rule = Rule::parse(&self.every)?;
        let within = |mut fault: Fault| {
            fault.path.splice(..0, *b"job.");
            fault
        };
        let specs = self.job.specs().map_err(within)?;
        self.job.times(now).map_err(within)?;
        if self.job.starts_at.is_some() {
            let cause = "a schedule says when its jobs start";
            return Err(invalid("job.starts_at", cause));
        }
        let times = [
            ("job.deadline", self.job.deadline),
            ("job.keep_until", self.job.keep_until),
        ];
        for (field, time) in times {
            if matches!(time, Some(Moment::At(_))) {
                let cause = "each job of a schedule needs its own: a duration";
                return Err(invalid(field, cause));
            }
        }
        let from = self.starts_at.map_or(now, |moment| moment.from(now));
        let first = rule.first(from);
        let first = first.ok_or_else(|| invalid("every", "its time never comes"))?;
        Ok((rule, first, specs))
    }
}

/// The settings of a job to be changed. One that is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobSettings {
    /// [`Submission::priority`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -10, maximum = 10)]
    pub priority: Option<i8>,
    /// [`Submission::label`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    pub label: Option<String>,
    /// [`Submission::deadline`]; the inner `None` (`null`) is for none.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,3}[mhd]$")]
    pub deadline: Option<Option<Moment>>,
    /// [`Submission::keep_until`], likewise.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[1-9][0-9]{0,3}[mhd]$")]
    pub keep_until: Option<Option<Moment>>,
}

/// A value that may be `null`, which differs from one that is left out.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Moment>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl JobSettings {
    /// Checks them. Returns the deadline and the time until which the job is kept.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the field.
    pub(crate) fn times(&self, now: Time) -> Result<[Option<Option<Time>>; 2], Fault> {
        if let Some(label) = &self.label {
            check_label(label)?;
        }
        if let Some(priority) = self.priority {
            check_priority(priority)?;
        }
        let set = |field, moment: Option<Option<Moment>>| {
            moment
                .map(|moment| time_to_come(field, moment, now))
                .transpose()
        };
        Ok([
            set("deadline", self.deadline)?,
            set("keep_until", self.keep_until)?,
        ])
    }
}

fn check_label(label: &str) -> Result<(), Fault> {
    if label.chars().count() > LABEL_MAX || label.contains(char::is_control) {
        let cause = format!("it has more than {LABEL_MAX} characters, or control characters");
        return Err(invalid("label", &cause));
    }
    Ok(())
}

fn check_priority(priority: i8) -> Result<(), Fault> {
    if priority.unsigned_abs() > PRIORITY_MAX {
        let cause = format!("it is {priority}, and not from -{PRIORITY_MAX} to {PRIORITY_MAX}");
        return Err(invalid("priority", &cause));
    }
    Ok(())
}

fn time_to_come(field: &str, moment: Option<Moment>, now: Time) -> Result<Option<Time>, Fault> {
    let time = moment.map(|moment| moment.from(now));
    match time {
        Some(time) if time <= now => Err(invalid(field, "it is in the past")),
        time => Ok(time),
    }
}

/// The source and the target of a transfer, by their fields; none of one that is no transfer.
fn places(job: &Job) -> Option<[(&'static str, &JobPlace); 2]> {
    let (source, target) = match job {
        Job::File(job) => (&job.source, &job.target),
        Job::Tree(job) => (&job.source, &job.target),
        Job::Sync(job) => (&job.source, &job.target),
        _ => return None,
    };
    Some([("source", source), ("target", target)])
}

/// Refuses what a transfer of a user who is no administrator may not use: the files of the user of
/// the process, and servers that let that user in.
///
/// # Errors
/// [`Code::PermissionDenied`] with the place.
pub(crate) fn check_for_user(job: &Job) -> Result<(), Fault> {
    for (_, place) in places(job).into_iter().flatten() {
        match place {
            JobPlace::Server(server) => check_server_of_user(server)?,
            place => {
                let cause = "only administrators copy files of the service's own machine";
                let fault = Fault::new(Code::PermissionDenied, "use the place", cause);
                return Err(fault
                    .path(shown(place))
                    .hint("name a server that serves them, by an xdfs:// URL"));
            }
        }
    }
    Ok(())
}

pub(crate) fn invalid(field: &str, cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, "accept the field", cause).path(field)
}

/// The transfer of a line, which is kept as it was written.
///
/// # Errors
/// [`Code::InvalidArgument`] with the field that doesn't suit a service.
pub(crate) fn spec_of_line(job: &Job, line: &str, manifest: bool) -> Result<Spec, Fault> {
    // The text form of a job, whose version is that of the library's.
    let text = format!(r#"{{"version":1,"job":{line}}}"#);
    spec(job, text, manifest, str::to_owned)
}

/// A transfer, its text, and the full name of a field of it.
fn spec(
    job: &Job,
    text: String,
    manifest: bool,
    field: impl Fn(&str) -> String,
) -> Result<Spec, Fault> {
    let (kind, source, target) = match job {
        Job::File(job) => ("file", &job.source, &job.target),
        Job::Tree(job) => ("tree", &job.source, &job.target),
        Job::Sync(job) => ("sync", &job.source, &job.target),
        _ => {
            return Err(invalid(
                &field("kind"),
                "a service copies files and trees only",
            ));
        }
    };
    let places = [("source", source), ("target", target)];
    for (name, place) in places {
        match place {
            JobPlace::Server(_) => {}
            JobPlace::Local(path) if path.is_absolute() => {}
            JobPlace::Local(_) => {
                let cause = "a path on the service's machine has to be absolute";
                return Err(invalid(&field(name), cause));
            }
            _ => {
                let cause = "a service has neither standard streams nor memory";
                return Err(invalid(&field(name), cause));
            }
        }
    }
    if !places
        .iter()
        .any(|(_, place)| matches!(place, JobPlace::Server(_)))
    {
        let cause = "neither of the places is on a server";
        return Err(invalid(&field("target"), cause));
    }
    if let Some((name, cause)) = contradiction(job, manifest) {
        return Err(invalid(&field(&name), cause));
    }
    let link = Link {
        source: server(source),
        target: server(target),
    };
    let [source, target] = places.map(|(name, place)| {
        let shown = shown(place);
        if shown.len() > PLACE_BYTES_MAX || shown.contains('\0') {
            let cause = format!("it has more than {PLACE_BYTES_MAX} bytes, or a NUL");
            return Err(invalid(&field(name), &cause));
        }
        Ok(shown)
    });
    Ok(Spec {
        kind,
        source: source?,
        target: target?,
        link,
        text,
    })
}

/// The server of a place; empty for this machine.
fn server(place: &JobPlace) -> String {
    match place {
        JobPlace::Server(place) => place.address.to_string(),
        _ => String::new(),
    }
}

/// A place for people.
fn shown(place: &JobPlace) -> String {
    match place {
        JobPlace::Local(path) => path.display().to_string(),
        JobPlace::Server(place) => place.to_string(),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(transfer: &str) -> String {
        let text = format!(r#"{{"version":1,"transfers":[{transfer}]}}"#);
        let submission: Submission = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{text}: {error}");
        });
        match submission.specs() {
            Ok(specs) => panic!("{specs:?}"),
            Err(fault) => String::from_utf8_lossy(&fault.path).into_owned(),
        }
    }

    #[test]
    fn what_suits_no_service_is_refused_with_its_field() {
        for (transfer, field) in [
            (
                r#"{"file":{"source":"a","target":"xdfs://h/b"}}"#,
                "transfers[0].source",
            ),
            (
                r#"{"file":{"source":"xdfs://h/b","target":"-"}}"#,
                "transfers[0].target",
            ),
            (
                r#"{"file":{"source":"/a","target":"/b"}}"#,
                "transfers[0].target",
            ),
            (r#"{"remove":{"place":"xdfs://h/b"}}"#, "transfers[0].kind"),
            (
                r#"{"tree":{"source":"/a","target":"xdfs://h/b","options":{"journal":"/etc"}}}"#,
                "transfers[0].options.journal",
            ),
        ] {
            assert_eq!(refused(transfer), field, "{transfer}");
        }
        for empty in [
            Submission::new("", Vec::new()),
            Submission::new("a\nb", Vec::new()),
        ] {
            assert!(empty.specs().is_err());
        }
    }

    #[test]
    fn a_copy_is_accepted() {
        let text = r#"{"version":1,"label":"results","transfers":[
            {"tree":{"source":"/data/a","target":"xdfs://lab/archive"}}]}"#;
        let submission: Submission = serde_json::from_str(text).unwrap_or_else(|error| {
            panic!("{error}");
        });
        let specs = submission.specs().unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(specs[0].kind, "tree");
        assert_eq!(specs[0].source, "/data/a");
        assert!(Job::from_json(&specs[0].text).is_ok());
    }
}
