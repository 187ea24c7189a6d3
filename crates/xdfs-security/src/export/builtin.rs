//! The built-in paths, for authenticated users: `mem:zero` and `mem:null`, for measuring a path
//! between two programs. Only this module knows their names.

use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{Code, Fault};
use xdfs_store::builtin::{NULL, ZERO};
use xdfs_store::{NullSink, OpenedSink, SinkRequest, Source, ZeroSource};

use super::Rights;
use super::path::rights_by_scopes;
use crate::{Method, Principal};

/// A built-in path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltIn {
    Null,
    Zero,
}

impl BuiltIn {
    /// The built-in path that `path` names, if any. A leading '/' is ignored; a file with such a
    /// name is reached through './'.
    pub(super) fn of(path: &[u8]) -> Option<Self> {
        match path.strip_prefix(b"/").unwrap_or(path) {
            NULL => Some(Self::Null),
            ZERO => Some(Self::Zero),
            _ => None,
        }
    }

    fn name(self) -> &'static [u8] {
        match self {
            Self::Null => NULL,
            Self::Zero => ZERO,
        }
    }

    pub(super) fn source(self, principal: &Principal) -> Result<Box<dyn Source>, Fault> {
        const OPERATION: &str = "open the source";
        self.check(OPERATION, principal, Rights::READ)?;
        match self {
            Self::Zero => Ok(Box::new(ZeroSource::new(None))),
            Self::Null => Err(self.fault(Code::Unsupported, OPERATION, "it can only be written")),
        }
    }

    pub(super) fn sink(
        self,
        principal: &Principal,
        request: &SinkRequest,
    ) -> Result<OpenedSink, Fault> {
        Ok(OpenedSink {
            path: self.sink_path(principal)?,
            sink: Box::new(NullSink::new()),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    pub(super) fn sink_path(self, principal: &Principal) -> Result<Vec<u8>, Fault> {
        const OPERATION: &str = "open the target";
        self.check(OPERATION, principal, Rights::CREATE)?;
        match self {
            Self::Null => Ok(NULL.to_vec()),
            Self::Zero => Err(self.fault(Code::Unsupported, OPERATION, "it can only be read")),
        }
    }

    /// Answers a call about it: that it exists.
    pub(super) fn call(self, principal: &Principal, call: &Call) -> Result<Answer, Fault> {
        let need = match self {
            Self::Zero => Rights::READ,
            Self::Null => Rights::CREATE,
        };
        self.check(call.operation(), principal, need)?;
        match call {
            Call::Stat { .. } => Ok(Answer::Attributes(xdfs_store::builtin::attributes())),
            _ => Err(self.fault(Code::Unsupported, call.operation(), "it is built in")),
        }
    }

    fn check(self, operation: &str, principal: &Principal, need: Rights) -> Result<(), Fault> {
        let cause = if principal.method == Method::Anonymous {
            "it is for authenticated users only"
        } else if !rights_by_scopes(&principal.scopes, self.name()).contains(need) {
            "the token or ticket that you used doesn't permit it"
        } else {
            return Ok(());
        };
        Err(self.fault(Code::PermissionDenied, operation, cause))
    }

    fn fault(self, code: Code, operation: &str, cause: &str) -> Fault {
        Fault::new(code, operation, cause).path(self.name())
    }
}
