//! The two ends of a tree, for faults: which machine has each, and the whole path of an entry.
//!
//! Entries are known by paths relative to the tree, which are of no use in a log of several trees.

use xdfs_proto::{Fault, Machine, Side};

use super::namespace::Namespace;
use crate::paths::join;

/// The source and the target of a tree.
#[derive(Debug)]
pub(super) struct Ends {
    source_root: Vec<u8>,
    /// The servers that have source and target; `None` for this machine.
    machines: [Option<Machine>; 2],
}

impl Ends {
    pub(super) fn new(source_root: Vec<u8>, machines: [Option<Machine>; 2]) -> Self {
        Self {
            source_root,
            machines,
        }
    }

    pub(super) fn of(source: &Namespace<'_>, target: &Namespace<'_>) -> Self {
        Self::new(source.root().to_vec(), [source.machine(), target.machine()])
    }

    /// A fault with its machine. Where both ends are on servers, those of the source are named
    /// already.
    pub(super) fn at(&self, fault: Fault) -> Fault {
        match self.machines.iter().rev().flatten().next() {
            Some(machine) => fault.at(machine),
            None => fault,
        }
    }

    /// The fault of an entry with its machine and its whole path there. `target_root` is that of
    /// the tree at the target.
    pub(super) fn named(&self, target_root: &[u8], path: &[u8], fault: &Fault) -> Fault {
        let fault = self.at(fault.clone());
        // A fault of a whole pack names none of its entries, and one of the local root itself `/`.
        let is_root = path.is_empty() && fault.side == Side::Local && fault.path == b"/";
        if fault.path != path && !fault.path.is_empty() && !is_root {
            return fault;
        }
        // A fault of this side, if both ends are on servers, is about what the user named first.
        let root = match fault.machine == self.machines[1] {
            true => target_root,
            false => &self.source_root,
        };
        fault.path(join(root, path))
    }
}
