//! Faults as they are stored and answered: the fields of the record `error`.

use serde::{Deserialize, Serialize};
use xdfs::record::Record;
use xdfs::{Code, Fault, Machine, Retry};

use crate::time::Time;

/// A fault in its text form, of which [`Record::error`] is the definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Failure {
    /// The stable word for the kind of fault ([`Code::as_str`]).
    pub code: String,
    /// `local` or `remote`.
    pub side: String,
    /// The machine at which it arose, if that is another one and known.
    pub machine: Option<String>,
    /// The operation, as a verb.
    pub operation: String,
    /// The path.
    pub path: Option<String>,
    /// Why.
    pub cause: String,
    /// The remedy.
    pub hint: Option<String>,
    /// `never`, `now` or `after`.
    pub retry: String,
    /// The pause before a retry.
    pub retry_after_ms: Option<u32>,
    /// The exit code of a program that fails for this reason.
    pub exit_code: u8,
}

impl From<&Fault> for Failure {
    fn from(fault: &Fault) -> Self {
        let record = serde_json::to_value(Record::error(None, fault));
        let failure = record.and_then(serde_json::from_value);
        // The record has these fields: a test looks at them.
        failure.unwrap_or_else(|error| Self {
            code: Code::Internal.as_str().to_owned(),
            side: "local".to_owned(),
            machine: None,
            operation: "write the fault as text".to_owned(),
            path: None,
            cause: error.to_string(),
            hint: None,
            retry: "never".to_owned(),
            retry_after_ms: None,
            exit_code: Code::Internal.exit_code(),
        })
    }
}

impl From<Failure> for Fault {
    /// The fault that was written, apart from the bytes of a path that isn't UTF-8.
    fn from(failure: Failure) -> Self {
        let mut codes = Code::ALL.iter().copied();
        let code = codes.find(|code| code.as_str() == failure.code);
        let code = code.unwrap_or(Code::Internal);
        let fault = Self::new(code, failure.operation, failure.cause)
            .path(failure.path.unwrap_or_default())
            .hint(failure.hint.unwrap_or_default())
            .retry(match (failure.retry.as_str(), failure.retry_after_ms) {
                ("now", _) => Retry::Now,
                ("after", Some(pause)) => Retry::AfterMs(pause),
                _ => Retry::Never,
            });
        let fault = match failure.side.as_str() {
            "remote" => fault.remote(),
            _ => fault,
        };
        Self {
            // Jobs find no machine but servers.
            machine: failure.machine.map(Machine::server),
            ..fault
        }
    }
}

impl Failure {
    /// Whether the same may succeed later without a change by somebody: the server or the way to it
    /// is away or busy.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        const PASSING: [Code; 6] = [
            Code::Busy,
            Code::ConnectionLost,
            Code::ConnectionRefused,
            Code::DeadlineExceeded,
            Code::SessionUnknown,
            Code::ShuttingDown,
        ];
        self.retry != "never" || PASSING.iter().any(|code| code.as_str() == self.code)
    }

    /// The failure of a job that was not done by its deadline.
    pub(crate) fn late(deadline: Time) -> Self {
        let cause = format!("it was not done by its deadline, {deadline}");
        let fault = Fault::new(Code::DeadlineExceeded, "run the job", cause);
        (&fault.hint("retry it, without a deadline or with a later one")).into()
    }

    /// Whether the server can't be reached, or has gone: other jobs would find the same.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        const OF_SERVER: [Code; 4] = [
            Code::ConnectionLost,
            Code::ConnectionRefused,
            Code::DeadlineExceeded,
            Code::ShuttingDown,
        ];
        OF_SERVER.iter().any(|code| code.as_str() == self.code)
    }

    /// The failure as a sentence, without its remedy.
    #[must_use]
    pub fn sentence(&self) -> String {
        Fault::from(self.clone()).to_string()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_fault_is_written_and_read() {
        let fault = Fault::new(Code::NoSpace, "write", "the disk is full")
            .path("/data/a")
            .hint("free some space")
            .retry(Retry::AfterMs(5));
        let failure = Failure::from(&fault);
        assert_eq!(failure.code, "no-space");
        assert_eq!(failure.retry_after_ms, Some(5));
        assert_eq!(failure.exit_code, 7);
        assert!(failure.may_pass());
        let for_good = Fault::new(Code::NotFound, "open", "there is no such file");
        assert!(!Failure::from(&for_good).may_pass());
        let away = Fault::new(Code::ConnectionRefused, "connect to", "it is down");
        assert!(Failure::from(&away).may_pass());
        let read = Fault::from(failure);
        assert_eq!((read.code, &read.path), (fault.code, &fault.path));
        assert_eq!((&read.cause, &read.hint), (&fault.cause, &fault.hint));
        let far = fault.remote().at(&Machine::server("lab:2811"));
        let read = Fault::from(Failure::from(&far));
        assert_eq!(read, far);
        let sentence = "server lab:2811: cannot write '/data/a': the disk is full";
        assert_eq!(Failure::from(&far).sentence(), sentence);
    }
}
