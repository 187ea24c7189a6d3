//! Parcels that go one after the other, in the order in which they were taken.

use std::collections::{BTreeSet, HashMap};

use xdfs_spool::Parcel;

/// The user, and the name of the order.
type Name = (String, String);

/// The parcels that wait for their turn, or have it.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// By the number at which they were taken, and their own.
    waiting: HashMap<Name, BTreeSet<(u64, u64)>>,
    names: HashMap<u64, (Name, u64)>,
}

impl Orders {
    /// Adds a parcel. Returns whether it is its turn.
    pub(super) fn add(&mut self, parcel: &Parcel) -> bool {
        let order = &parcel.order;
        let Some(in_order) = &order.in_order else {
            return true;
        };
        let name = (order.user.clone(), in_order.clone());
        let own = self.waiting.entry(name.clone()).or_default();
        own.insert((parcel.taken, parcel.number));
        let is_first = own.first() == Some(&(parcel.taken, parcel.number));
        self.names.insert(parcel.number, (name, parcel.taken));
        is_first
    }

    /// Removes a parcel that is over here. Returns the one whose turn it is then.
    pub(super) fn remove(&mut self, number: u64) -> Option<u64> {
        let (name, taken) = self.names.remove(&number)?;
        let own = self.waiting.get_mut(&name)?;
        let was_first = own.first() == Some(&(taken, number));
        own.remove(&(taken, number));
        let next = own.first().map(|(_, next)| *next);
        if own.is_empty() {
            self.waiting.remove(&name);
        }
        next.filter(|_| was_first)
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::digest::DigestValue;
    use xdfs_proto::relay::ParcelState;
    use xdfs_proto::third_party::CopyId;
    use xdfs_spool::NewParcel;

    use super::*;

    fn parcel(number: u64, taken: u64, in_order: Option<&str>) -> Parcel {
        Parcel {
            number,
            content: number,
            order: NewParcel {
                user: "alice".into(),
                id: CopyId([0; 16]),
                target: String::new(),
                name: Vec::new(),
                overwrite: false,
                tree: false,
                bytes: 0,
                life_s: 1,
                digest: DigestValue::None,
                next: Vec::new(),
                passed: Vec::new(),
                of: None,
                in_order: in_order.map(str::to_owned),
                ahead: false,
            },
            state: ParcelState::Held,
            taken,
            opened_s: 0,
            ended_s: 0,
            mode: None,
            mtime_ns: None,
            digest: DigestValue::None,
            placed: None,
            handed_to: None,
            offered: false,
            sent_anew: 0,
            begun: None,
            cancel_wanted: false,
            retry_wanted: false,
            fault: None,
            attempts: 0,
        }
    }

    #[test]
    fn those_of_one_order_have_their_turn_one_after_the_other() {
        let mut orders = Orders::default();
        assert!(orders.add(&parcel(1, 11, Some("a"))));
        // Taken later, though it was opened before.
        assert!(!orders.add(&parcel(0, 12, Some("a"))));
        assert!(!orders.add(&parcel(2, 13, Some("a"))));
        assert!(orders.add(&parcel(3, 14, Some("b"))), "of another order");
        assert!(orders.add(&parcel(4, 15, None)));
        assert!(orders.add(&parcel(1, 11, Some("a"))), "again");
        assert_eq!(orders.remove(2), None, "it wasn't its turn");
        assert_eq!(orders.remove(1), Some(0));
        assert_eq!(orders.remove(1), None);
        // Put back, it goes first.
        assert!(orders.add(&parcel(1, 11, Some("a"))));
        assert_eq!(orders.remove(1), Some(0));
        assert_eq!(orders.remove(0), None);
        assert_eq!(orders.remove(3), None);
        assert!(orders.waiting.is_empty() && orders.names.is_empty());
    }
}
