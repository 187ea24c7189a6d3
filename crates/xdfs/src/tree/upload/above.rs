//! The directories above a large file at the server, which is a transfer of its own.

use std::collections::VecDeque;

use xdfs_proto::{Code, Fault};

use super::{LOOKS_MAX, Sending, Upload};
use crate::paths::{Answer, Call, FileKind, PendingCall};
use crate::tree::join;

impl Upload<'_> {
    /// Has the directory of a large file made, unless a symbolic link stands on the way to it in
    /// the tree: what packs refuse isn't to depend on the size of a file. The pack that makes the
    /// directory may be on its way.
    pub(super) fn make_above(&self, path: &[u8], sending: &mut Sending) -> Result<(), Fault> {
        let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let above = &path[..end];
        if sending.made_directory.as_deref() == Some(above) {
            return Ok(());
        }
        self.refuse_links(above, sending.made_directory.as_deref())?;
        self.client.call(Call::MakeDirectory {
            path: match above {
                b"" => self.root.clone(),
                above => join(&self.root, above),
            },
            mode: None,
            parents: true,
        })?;
        sending.made_directory = Some(above.to_vec());
        Ok(())
    }

    /// Fails if one of the directories down to `above` is a link. Those that it shares with `known`
    /// aren't looked at again. What can't be looked at isn't known to be one.
    fn refuse_links(&self, above: &[u8], known: Option<&[u8]>) -> Result<(), Fault> {
        let is_known = |prefix: &[u8]| {
            let rest = known.and_then(|known| known.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let ends = (1..=above.len()).filter(|end| matches!(above.get(*end), None | Some(b'/')));
        let mut ahead = ends
            .map(|end| &above[..end])
            .filter(|prefix| !is_known(prefix));
        let mut looks: VecDeque<PendingCall> = VecDeque::new();
        loop {
            while looks.len() < LOOKS_MAX
                && let Some(prefix) = ahead.next()
            {
                looks.push_back(self.client.start_call(Call::Stat {
                    path: join(&self.root, prefix),
                    follow: false,
                })?);
            }
            let Some(look) = looks.pop_front() else {
                return Ok(());
            };
            if let Ok(Answer::Attributes(found)) = look.wait()
                && found.kind == FileKind::Symlink
            {
                let cause = "a symbolic link stands on the way";
                return Err(Fault::new(Code::PathEscape, "open the target", cause));
            }
        }
    }
}
