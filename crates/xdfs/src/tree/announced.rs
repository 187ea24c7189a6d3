//! Trees on servers that are about to be read.

use super::namespace::Namespace;
use super::options::TreeOptions;
use crate::client::Client;

/// A tree on a server that will be read, so that the server can be asked for all of it at once.
pub(super) struct AnnouncedTree<'a> {
    client: &'a Client,
    /// Its files are best asked for in the order of their sizes.
    pub(super) is_by_size: bool,
}

impl<'a> AnnouncedTree<'a> {
    /// Prepares the sessions of source and target for packs, and announces the source if its server
    /// will be asked for them.
    pub(super) fn prepare(
        [source, target]: [&Namespace<'a>; 2],
        options: &TreeOptions,
    ) -> Option<Self> {
        for session in [source, target].into_iter().filter_map(Namespace::session) {
            session.client.prepare_packs();
        }
        let session = source.session()?;
        let has_packs = source.packs_for(target, options);
        has_packs.then(|| Self::begin(session.client, source.root()))
    }

    fn begin(client: &'a Client, root: &[u8]) -> Self {
        let is_by_size = client.behind().is_some_and(|place| place.begin_tree(root));
        Self { client, is_by_size }
    }
}

impl Drop for AnnouncedTree<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.client.behind() {
            place.end_tree();
        }
    }
}
