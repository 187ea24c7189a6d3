//! The members of a group as sources of a file that they have on one storage.

use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::Fingerprint;

use super::set::ReplicaSet;
use super::version::FileVersion;
use crate::address::Address;
use crate::client::Client;
use crate::remote::{Invitation, RemotePlace};

const STRIPE: &str = "stripe the file";

impl ReplicaSet {
    /// The members of the group of a server as the sources of a file there, that server before the
    /// others; `client` has the session with it. The version of the file is the one that it has
    /// now. `None` if there is no such file, so that a copy says why.
    ///
    /// A member is a place with the only trusted key. At each the client has to log in as at this
    /// server, but for a ticket, which is that server's alone.
    ///
    /// # Errors
    /// The server is in no group, its storage doesn't identify files, or the session has ended.
    pub fn of_group(client: &Client, place: &RemotePlace) -> Result<Option<Self>, Fault> {
        let path = client.absolute(&place.path);
        let look = Call::Stat {
            path: path.clone(),
            follow: true,
        };
        let found = match client.call(look) {
            Ok(Answer::Attributes(found)) if found.kind == FileKind::File => found,
            Err(fault) if client.ended().is_some() => return Err(fault),
            _ => return Ok(None),
        };
        let failed = |code, cause: &str| {
            let fault = Fault::new(code, STRIPE, cause).path(&path).remote();
            fault.at(&place.address.machine())
        };
        let version = FileVersion::of(&found).ok_or_else(|| {
            let cause = "its storage doesn't identify the versions of files";
            failed(Code::Unsupported, cause).hint("leave out --stripe")
        })?;
        let places = members(client, place, &path)?;
        let set = Self::new(places)?;
        Ok(Some(Self {
            length: Some(version.size),
            version: Some(version),
            ..set
        }))
    }

    /// The members of the group of a server as those that move any files together, at and beneath
    /// the path of the place: that server before the others; `client` has the session with it. It
    /// is the one that publishes what they write.
    ///
    /// # Errors
    /// The server is in no group, or the session has ended.
    pub fn of_target(client: &Client, place: &RemotePlace) -> Result<Self, Fault> {
        let path = client.absolute(&place.path);
        let mut above = &path[..];
        let places = loop {
            let is_root = above.is_empty() || above == b"/";
            match members(client, place, if is_root { b"/" } else { above }) {
                // There may be no such file yet, and no such directory.
                Err(fault) if !is_root && is_missing(&fault) => {
                    let parent = above.iter().rposition(|byte| *byte == b'/');
                    above = &above[..parent.unwrap_or(0)];
                }
                places => break places?,
            }
        };
        Ok(Self {
            places,
            name: Vec::new(),
            length: None,
            digest: None,
            version: None,
        })
    }
}

fn is_missing(fault: &Fault) -> bool {
    matches!(fault.code, Code::NotFound | Code::NotDirectory)
}

/// The members of the group of a server, that server before the others, each with the path of
/// `place`.
fn members(client: &Client, place: &RemotePlace, path: &[u8]) -> Result<Vec<RemotePlace>, Fault> {
    let failed = |code, cause: &str| {
        let fault = Fault::new(code, STRIPE, cause).path(path).remote();
        fault.at(&place.address.machine())
    };
    let answer = client.call(Call::Group {
        path: path.to_vec(),
    });
    let group = match answer {
        Ok(Answer::Group(group)) => group,
        Ok(_) => return Err(failed(Code::Internal, "another answer")),
        Err(fault) if fault.code == Code::Unsupported => {
            let cause = "the server is in no group";
            return Err(failed(Code::Unsupported, cause)
                .hint("leave out --stripe: -n is the number of channels to one server"));
        }
        Err(fault) => return Err(fault),
    };
    let own = client.server_fingerprint();
    let others = group
        .members
        .iter()
        .filter(|member| own != Some(Fingerprint(member.key)));
    let others = others.map(|member| match member.address.parse() {
        Ok(address @ Address::Host { .. }) => Ok(RemotePlace {
            address,
            invitation: Invitation {
                pin: Some(Fingerprint(member.key)),
                ..Invitation::default()
            },
            ..place.clone()
        }),
        _ => {
            let cause = format!("'{}' of its group is no address", member.address);
            Err(failed(Code::InvalidArgument, &cause))
        }
    });
    std::iter::once(Ok(place.clone())).chain(others).collect()
}
