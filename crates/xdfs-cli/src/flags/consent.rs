//! The scope of `--insecure`: FTP alone, or all servers of a command.
//!
//! FTP has no protection, so that a copy between an `ftp://` place and another server needs the
//! user's consent to that alone: the other session stays protected.

use xdfs::{Address, Code, Fault, FtpProtection, RemotePlace};

use super::SecurityFlags;

impl SecurityFlags {
    /// The flags for sessions with places that are used together.
    pub(crate) fn for_places<'a>(self, places: impl IntoIterator<Item = &'a RemotePlace>) -> Self {
        let (mut has_ftp, mut has_other) = (false, false);
        for place in places {
            match sends_in_clear(place) {
                true => has_ftp = true,
                false => has_other = true,
            }
        }
        Self {
            is_consent_to_ftp: self.is_consent_to_ftp || has_ftp && has_other,
            ..self
        }
    }

    /// The flags for a session with a server.
    ///
    /// # Errors
    /// They want protection, and none.
    pub(crate) fn for_place(self, place: &RemotePlace) -> Result<Self, Fault> {
        let is_clear = sends_in_clear(place);
        if self.is_consent_to_ftp && is_clear {
            // The flags of protection are about the other place.
            return Ok(Self {
                insecure: self.insecure,
                ..Self::default()
            });
        }
        // It can do without protection too, and gives no other way to say so beside this flag.
        let is_of_sshftp = matches!(place.address, Address::SshFtp { .. });
        let insecure = self.insecure && (!self.is_consent_to_ftp || is_of_sshftp);
        if insecure && self.protects() {
            let cause = "--insecure can't be combined with flags that protect the session";
            let fault = Fault::new(Code::InvalidArgument, "open the session", cause);
            return Err(fault.hint(
                "leave out --insecure, or the flags that say how to log in, whom to trust or what \
                 to protect",
            ));
        }
        Ok(Self { insecure, ..self })
    }
}

/// Whether the server of a place gets everything unencrypted.
fn sends_in_clear(place: &RemotePlace) -> bool {
    let protection = FtpProtection::None;
    matches!(&place.address, Address::Ftp { protection: own, .. } if *own == protection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consent_to_ftp_concerns_no_other_place() {
        let place = |text: &str| text.parse::<RemotePlace>().unwrap();
        let insecure = || SecurityFlags {
            insecure: true,
            ..SecurityFlags::default()
        };
        let pinned = || SecurityFlags {
            anonymous: true,
            ..insecure()
        };
        let [ftp, xdfs, ftps, ssh] =
            ["ftp://h/", "xdfs://h/", "ftps://h/", "sshftp://h/"].map(place);
        for (one, other, wanted) in [
            (&ftp, &xdfs, [true, false]),
            (&xdfs, &ftp, [false, true]),
            (&ftps, &ftp, [false, true]),
            (&ssh, &ftp, [true, true]),
            (&ftp, &ftp, [true, true]),
            (&xdfs, &xdfs, [true, true]),
            (&ftps, &xdfs, [true, true]),
        ] {
            let flags = insecure().for_places([one, other]);
            let found = [one, other].map(|place| flags.clone().for_place(place).unwrap().insecure);
            assert_eq!(found, wanted, "{one} {other}");
        }
        let flags = pinned().for_places([&ftp, &xdfs]);
        assert!(!flags.clone().for_place(&ftp).unwrap().anonymous);
        let there = flags.for_place(&xdfs).unwrap();
        assert!(there.anonymous && !there.insecure);
        for places in [[&ftp, &ftp], [&xdfs, &xdfs]] {
            let flags = pinned().for_places(places);
            let fault = flags.for_place(places[0]).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument);
        }
    }
}
