//! The text forms of options, for serde's `with`: names of digests, durations, paths, and bytes
//! that need not be UTF-8. Those of the options themselves are derived where these are defined.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xdfs_engine::TransferParameters;
use xdfs_proto::DigestKind;
use xdfs_proto::frame::Resume;

use crate::local_path::path_bytes;

/// A value that is written as a value of another type.
pub(crate) trait TextForm: Sized {
    type Form: Serialize + DeserializeOwned;

    /// # Errors
    /// The value has no text form.
    fn form(&self) -> Result<Self::Form, String>;

    /// # Errors
    /// The text is none of such a value.
    fn parse(form: Self::Form) -> Result<Self, String>;
}

pub(crate) fn serialize<T: TextForm, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let form = value.form().map_err(S::Error::custom)?;
    form.serialize(to)
}

pub(crate) fn deserialize<'de, T: TextForm, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::parse(T::Form::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl<T: TextForm> TextForm for Option<T> {
    type Form = Option<T::Form>;

    fn form(&self) -> Result<Self::Form, String> {
        self.as_ref().map(T::form).transpose()
    }

    fn parse(form: Self::Form) -> Result<Self, String> {
        form.map(T::parse).transpose()
    }
}

/// A string; where it wouldn't be UTF-8, a list of bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of bytes")]
pub(crate) enum BytesForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl TextForm for Vec<u8> {
    type Form = BytesForm;

    fn form(&self) -> Result<BytesForm, String> {
        Ok(match String::from_utf8(self.clone()) {
            Ok(text) => BytesForm::Text(text),
            Err(error) => BytesForm::Bytes(error.into_bytes()),
        })
    }

    fn parse(form: BytesForm) -> Result<Self, String> {
        Ok(match form {
            BytesForm::Text(text) => text.into_bytes(),
            BytesForm::Bytes(bytes) => bytes,
        })
    }
}

impl TextForm for PathBuf {
    type Form = BytesForm;

    fn form(&self) -> Result<BytesForm, String> {
        path_bytes(self).form()
    }

    fn parse(form: BytesForm) -> Result<Self, String> {
        let bytes = Vec::parse(form)?;
        xdfs_sys::fs::path_from_bytes(&bytes).map_err(|error| error.to_string())
    }
}

/// Decimal seconds, such as `0.2s`.
impl TextForm for Duration {
    type Form = String;

    fn form(&self) -> Result<String, String> {
        let seconds = format!("{}.{:09}", self.as_secs(), self.subsec_nanos());
        let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
        Ok(format!("{seconds}s"))
    }

    fn parse(form: String) -> Result<Self, String> {
        let parse = || {
            let seconds = form.strip_suffix('s')?;
            // "1.5": an empty whole number is refused by its own parser.
            let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
            let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number(whole) || !is_number(part) || part.is_empty() || part.len() > 9 {
                return None;
            }
            let nanoseconds = format!("{part:0<9}").parse().ok()?;
            Some(Self::new(whole.parse().ok()?, nanoseconds))
        };
        parse().ok_or_else(|| format!("'{form}' is no duration such as 0.2s"))
    }
}

const DIGESTS: [(DigestKind, &str); 3] = [
    (DigestKind::None, "none"),
    (DigestKind::Crc64Nvme, "crc64nvme"),
    (DigestKind::Blake3, "blake3"),
];

impl TextForm for DigestKind {
    type Form = String;

    fn form(&self) -> Result<String, String> {
        name(&DIGESTS, *self)
    }

    fn parse(form: String) -> Result<Self, String> {
        named(&DIGESTS, &form)
    }
}

const RESUMES: [(Resume, &str); 3] = [
    (Resume::Never, "never"),
    (Resume::Trust, "trust"),
    (Resume::Verify, "verify"),
];

impl TextForm for Resume {
    type Form = String;

    fn form(&self) -> Result<String, String> {
        name(&RESUMES, *self)
    }

    fn parse(form: String) -> Result<Self, String> {
        named(&RESUMES, &form)
    }
}

/// The text form of [`TransferParameters`].
#[derive(Default, Serialize, Deserialize)]
#[serde(rename = "TransferParameters", deny_unknown_fields, default)]
pub(crate) struct ParametersForm {
    #[serde(with = "crate::text")]
    digest: Option<DigestKind>,
    overwrite: bool,
    #[serde(with = "crate::text")]
    resume: Resume,
    rate_bytes_per_s_max: Option<u64>,
    dry_run: bool,
}

impl TextForm for TransferParameters {
    type Form = ParametersForm;

    fn form(&self) -> Result<ParametersForm, String> {
        // All of them: one without a text form would be lost.
        let Self {
            digest,
            overwrite,
            resume,
            rate_bytes_per_s_max,
            dry_run,
        } = *self;
        Ok(ParametersForm {
            digest,
            overwrite,
            resume,
            rate_bytes_per_s_max,
            dry_run,
        })
    }

    fn parse(form: ParametersForm) -> Result<Self, String> {
        Ok(Self {
            digest: form.digest,
            overwrite: form.overwrite,
            resume: form.resume,
            rate_bytes_per_s_max: form.rate_bytes_per_s_max,
            dry_run: form.dry_run,
        })
    }
}

/// The name of a value in a table.
fn name<T: PartialEq>(table: &[(T, &str)], value: T) -> Result<String, String> {
    let known = table.iter().find(|(known, _)| *known == value);
    let (_, name) = known.ok_or("it has no name")?;
    Ok((*name).to_owned())
}

/// The value with a name in a table.
fn named<T: Copy>(table: &[(T, &str)], name: &str) -> Result<T, String> {
    let known = table.iter().find(|(_, known)| *known == name);
    let unknown = || {
        let names: Vec<_> = table.iter().map(|(_, known)| *known).collect();
        format!("'{name}' is none of {}", names.join(", "))
    };
    known.map(|(value, _)| *value).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_duration_has_a_text(seconds: u64, nanoseconds in 0..1_000_000_000_u32) {
            let duration = Duration::new(seconds, nanoseconds);
            prop_assert_eq!(Duration::parse(duration.form().unwrap()), Ok(duration));
        }

        #[test]
        fn all_bytes_have_a_text(bytes: Vec<u8>) {
            let text = serde_json::to_string(&bytes.form().unwrap()).unwrap();
            let form = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(Vec::parse(form), Ok(bytes));
        }
    }

    #[test]
    fn durations_are_written_as_seconds() {
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(200), "0.2s"),
            (Duration::from_secs(100), "100s"),
            (Duration::from_nanos(1), "0.000000001s"),
        ] {
            assert_eq!(duration.form().unwrap(), text);
        }
        for text in [
            "",
            "s",
            "1",
            "-1s",
            "+1s",
            "1.s",
            ".1s",
            "0.0000000001s",
            "1e3s",
            "99999999999999999999s",
        ] {
            assert!(Duration::parse(text.to_owned()).is_err(), "{text}");
        }
    }
}
