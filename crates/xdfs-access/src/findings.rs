//! Findings of a check of a server's settings.

use std::path::Path;
use std::time::SystemTime;

use xdfs_proto::{Code, Fault};
use xdfs_security::identity::{Timeliness, Validity};

/// A setting that can't be used as it is.
#[derive(Clone, Debug)]
pub struct SettingFault {
    /// Name of the setting, as in the configuration file of `xdfs serve`; empty for the files in
    /// the server's folder.
    pub setting: &'static str,
    /// Its number, from 0, among those that may occur more than once.
    pub number: usize,
    /// The reason.
    pub fault: Fault,
}

/// Findings of a check that changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Everything that would keep the server from starting, or users from what they are granted.
    pub faults: Vec<SettingFault>,
    /// Settings that don't fit the time or the machine. Certificates that have ended or aren't
    /// valid yet: the server serves with them nevertheless, and clients that verify them fail.
    /// Addresses to listen on that the machine doesn't have: the server doesn't start with them,
    /// and one that runs isn't concerned.
    pub unfit: Vec<SettingFault>,
    /// The settings that are allowed and probably mistakes, in words.
    pub warnings: Vec<String>,
}

impl Findings {
    /// The value of `result`; its fault is noted as one of the setting with this name and number.
    pub fn note<T>(
        &mut self,
        setting: &'static str,
        number: usize,
        result: Result<T, Fault>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.faults.push(SettingFault {
                    setting,
                    number,
                    fault,
                });
                None
            }
        }
    }

    /// Notes certificates of a file that aren't valid now, or end soon.
    pub fn check_time(&mut self, setting: &'static str, file: &Path, validity: Option<Validity>) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs().cast_signed());
        match validity.map(|validity| validity.at(now)) {
            None | Some(Timeliness::Valid) => {}
            Some(Timeliness::EndsSoon(what)) => {
                self.warnings.push(format!("{}: {what}", file.display()));
            }
            Some(Timeliness::Invalid(what)) => {
                let fault = Fault::new(Code::InvalidArgument, "read the certificate", what);
                let name = file.as_os_str().as_encoded_bytes();
                self.unfit.push(SettingFault {
                    setting,
                    number: 0,
                    fault: fault.path(name).hint("put a new one in its place"),
                });
            }
        }
    }
}
