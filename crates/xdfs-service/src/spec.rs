//! Submissions: what a client wants to be done, as it writes it.

use serde::{Deserialize, Serialize};
use xdfs::{Code, Fault, Job, JobPlace};

/// Version of the form of a submission.
const VERSION: u32 = 1;
/// Most transfers of a job.
const TRANSFERS_MAX: usize = 10_000;
/// Retries in a row without progress, where a submission doesn't say: about a day.
const RETRIES_MAX: u32 = 150;
/// Most characters of a label.
const LABEL_MAX: usize = 200;

/// A job as a client submits it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Version of this form: 1.
    pub version: u32,
    /// A line for people. Empty for none.
    #[serde(default)]
    pub label: String,
    /// Most retries of the job in a row without progress, with pauses that grow from seconds to ten
    /// minutes; 0 for none. Those of a broken connection within a copy come before, and aren't
    /// counted.
    #[serde(default = "retries_max")]
    pub retries_max: u32,
    /// The transfers, done one after the other. One that fails doesn't stop the others.
    pub transfers: Vec<Job>,
}

/// A transfer as the database has it.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) kind: &'static str,
    pub(crate) source: String,
    pub(crate) target: String,
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
            retries_max: RETRIES_MAX,
            transfers,
        }
    }

    /// Checks what can be checked without places or servers.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the field that doesn't suit a service.
    pub(crate) fn specs(&self) -> Result<Vec<Spec>, Fault> {
        if self.version != VERSION {
            let cause = format!("its version is {}, and this service knows 1", self.version);
            return Err(Fault::new(Code::Unsupported, "read the job", cause));
        }
        if self.label.chars().count() > LABEL_MAX || self.label.contains(char::is_control) {
            let cause = format!("it has more than {LABEL_MAX} characters, or control characters");
            return Err(invalid("label", &cause));
        }
        let count = self.transfers.len();
        if count == 0 || count > TRANSFERS_MAX {
            let cause = format!("there are {count}, and a job has 1 to {TRANSFERS_MAX}");
            return Err(invalid("transfers", &cause));
        }
        self.transfers.iter().enumerate().map(spec).collect()
    }
}

fn invalid(field: &str, cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, "accept the field", cause).path(field)
}

fn spec((index, job): (usize, &Job)) -> Result<Spec, Fault> {
    let field = |name: &str| format!("transfers[{index}].{name}");
    let (kind, source, target, journal) = match job {
        Job::File(job) => ("file", &job.source, &job.target, None),
        Job::Tree(job) => {
            let journal = job.options.journal.as_ref();
            ("tree", &job.source, &job.target, journal)
        }
        Job::Sync(job) => {
            let journal = job.options.tree.journal.as_ref();
            ("sync", &job.source, &job.target, journal)
        }
        _ => {
            return Err(invalid(
                &field("kind"),
                "a service copies files and trees only",
            ));
        }
    };
    if journal.is_some() {
        let cause = "the service keeps the journals of its jobs";
        return Err(invalid(&field("options.journal"), cause));
    }
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
    Ok(Spec {
        kind,
        source: shown(source),
        target: shown(target),
        text: job.to_json()?,
    })
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
