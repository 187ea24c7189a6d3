//! Parcels: files that an acceptor takes for another server, and delivers there later.
//!
//! The initiator [opens](ParcelOrder) a parcel, and uploads its file to the [path](parcel_path) of
//! the parcel. From PUBLISHED on, the acceptor answers for the delivery, and the initiator may
//! leave. These types are the fields of the [calls](RelayCall) for that, and of their answer.

use crate::digest::DigestValue;
use crate::fault::Fault;
use crate::limits::USER_BYTES_MAX;
use crate::third_party::CopyId;
use crate::wire::{DecodeError, Reader, Writer, check_most, flag, present};

/// Longest life of a parcel in seconds: 30 days, so that what is never delivered doesn't fill the
/// spool for ever.
pub const PARCEL_LIFE_S_MAX: u32 = 30 * 24 * 3600;
/// Longest URL of a target in bytes: a path of the longest kind, each byte as %XX, and a server.
pub const TARGET_BYTES_MAX: usize = 3 * 4096 + 512;
/// Most relays on the way of a parcel: those that it has passed, and those that come next.
pub const RELAYS_MAX: usize = 8;
/// Longest URL of a relay in bytes.
pub const RELAY_BYTES_MAX: usize = 512;
/// Longest name of an order in bytes.
pub const ORDER_BYTES_MAX: usize = 64;

/// Size of parcels in one answer to a [query](ParcelQuery), below the smallest limit of a frame.
pub const LISTED_BYTES_MAX: usize = 32 << 10;
/// Most bytes of a parcel in a list without its texts: identifier, lengths of user and target, and
/// the fields of a state with the longest digest.
const LISTED_FIXED_BYTES: usize = 16 + 2 + 2 + 2 + 5 * 8 + 4 + 1 + 32;

const USER: &str = "user of a parcel";

/// Numbers of the operations.
pub(crate) mod operation {
    pub(crate) const OPEN_PARCEL: u8 = 0x31;
    pub(crate) const PARCEL_STATUS: u8 = 0x32;
    pub(crate) const END_PARCEL: u8 = 0x33;
    pub(crate) const LIST_PARCELS: u8 = 0x34;
}

/// Open parcel: replace an existing entry.
const OVERWRITE: u8 = 1 << 0;
/// Open parcel: the file is a tree.
const TREE: u8 = 1 << 1;
/// Open parcel: its file is that of another parcel.
const OF: u8 = 1 << 2;
/// Open parcel: it goes in an order.
const IN_ORDER: u8 = 1 << 3;
/// Open parcel: its digest comes with a repeated call.
const AHEAD: u8 = 1 << 4;
/// Parcel status, end parcel: the user is named. List parcels: those of all users.
const USERS: u8 = 1 << 0;
/// List of parcels: there are more.
const MORE: u8 = 1 << 0;
/// Parcel status: the time of the next attempt is known.
const NEXT: u8 = 1 << 0;
/// Parcel status: there is a fault.
const FAULT: u8 = 1 << 1;
/// Parcel status: the fault is one of the target.
const THERE: u8 = 1 << 2;
/// Parcel status: another relay has the parcel.
const HOLDER: u8 = 1 << 3;

/// The directory of the paths of parcels.
const DIRECTORY: &[u8] = b".xdfs-parcel/";

/// The path at the acceptor to which the file of a parcel is uploaded.
#[must_use]
pub fn parcel_path(id: CopyId) -> Vec<u8> {
    [DIRECTORY, id.to_string().as_bytes()].concat()
}

/// The parcel whose file is uploaded to a path; `None` if it is none of a parcel.
#[must_use]
pub fn parcel_of(path: &[u8]) -> Option<CopyId> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let id = path.strip_prefix(DIRECTORY)?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// A call about parcels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayCall {
    /// Opens a parcel. Answered by [`Done`](crate::path::Answer::Done), also if the user has opened
    /// it before with the same fields.
    Open(Box<ParcelOrder>),
    /// Queries the state of a parcel. Answered by
    /// [`ParcelStatus`](crate::path::Answer::ParcelStatus).
    Status(ParcelName),
    /// Ends a parcel, or has it delivered again. Answered by [`Done`](crate::path::Answer::Done).
    End(ParcelName, ParcelEnd),
    /// Lists parcels. Answered by [`Parcels`](crate::path::Answer::Parcels).
    List(ParcelQuery),
}

/// A parcel among those of all users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelName {
    /// Its identifier.
    pub id: CopyId,
    /// The user whose it is, for an operator; `None` for the one who asks.
    pub user: Option<String>,
}

impl From<CopyId> for ParcelName {
    fn from(id: CopyId) -> Self {
        Self { id, user: None }
    }
}

/// A question for many parcels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParcelQuery {
    /// Parcels of all users, for an operator; otherwise the parcels of the user who asks.
    pub all_users: bool,
    /// The states of interest: bit *n* for the one with the number *n*. At least one.
    pub states: u8,
    /// Where the list begins: 0, or [`ParcelList::next`] of the answer before.
    pub from: u64,
}

impl ParcelQuery {
    /// All states.
    pub const ALL_STATES: u8 = (1 << ParcelState::ALL.len()) - 1;

    /// The bit of a state in [`Self::states`].
    #[must_use]
    pub fn bit(state: ParcelState) -> u8 {
        1 << state.number()
    }
}

/// A part of the list of parcels, in the order of their submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelList {
    /// Where the list continues; `None` at its end. A part may be empty before it.
    pub next: Option<u64>,
    /// The parcels.
    pub parcels: Vec<ListedParcel>,
}

/// A parcel in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedParcel {
    /// Its identifier.
    pub id: CopyId,
    /// The user whose it is.
    pub user: String,
    /// How far it is.
    pub status: ParcelStatus,
}

/// A file that is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelOrder {
    /// The identifier of the parcel, chosen by the initiator: 16 random bytes.
    pub id: CopyId,
    /// Replace an existing entry at the target.
    pub overwrite: bool,
    /// The file is a [tree](crate::tree_file), and is delivered as one; not with `overwrite`.
    pub tree: bool,
    /// Length of the file.
    pub bytes: u64,
    /// Seconds after which a parcel that isn't delivered is given up: at least 1, at most
    /// [`PARCEL_LIFE_S_MAX`].
    pub life_s: u32,
    /// The target as a URL, which names a file, or a directory by a slash at its end.
    pub target: String,
    /// The name of the file if the target is a directory.
    pub name: Vec<u8>,
    /// The digest that the file must have; none if the initiator doesn't know it.
    pub digest: DigestValue,
    /// The relays by which the acceptor is to send it on, as URLs, the next one first; none for one
    /// that is to deliver it.
    pub next: Vec<String>,
    /// The relays that it has passed, the first one first. One that finds itself here refuses it.
    pub passed: Vec<RelayId>,
    /// Another parcel of the user, whose file is that of this one too: it isn't uploaded again.
    pub of: Option<CopyId>,
    /// The name of an order: parcels of the user with the same one are delivered one after the
    /// other, as they were taken.
    pub in_order: Option<String>,
    /// The initiator doesn't have all of the file yet: it repeats the call without this and with
    /// the digest, and the file isn't taken before. There is no digest then.
    pub ahead: bool,
}

/// The number by which a relay recognises itself: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayId(pub [u8; 16]);

/// The end that is wanted for a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParcelEnd {
    /// It isn't to be delivered. No change after its delivery.
    Cancel,
    /// It is to be tried again at once: one that was given up, or one that waits.
    Retry,
}

/// How far a parcel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParcelState {
    /// The file hasn't arrived as a whole.
    Arriving,
    /// It is durable at the acceptor, and waits for its delivery.
    Held,
    /// It is on its way to the target.
    Delivering,
    /// It is at its target.
    Delivered,
    /// It was given up, and can be put back.
    Dead,
    /// The user has ended it.
    Cancelled,
}

impl ParcelState {
    /// All states, by their numbers.
    pub const ALL: [Self; 6] = [
        Self::Arriving,
        Self::Held,
        Self::Delivering,
        Self::Delivered,
        Self::Dead,
        Self::Cancelled,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Arriving => "arriving",
            Self::Held => "held",
            Self::Delivering => "delivering",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Its number on the wire and in a spool.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Arriving => 0,
            Self::Held => 1,
            Self::Delivering => 2,
            Self::Delivered => 3,
            Self::Dead => 4,
            Self::Cancelled => 5,
        }
    }

    /// The state with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether nothing happens any more unless somebody asks for it.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Delivered | Self::Dead | Self::Cancelled)
    }

    /// Whether the acceptor answers for the file, or has answered for it.
    #[must_use]
    pub fn is_taken(self) -> bool {
        !matches!(self, Self::Arriving | Self::Cancelled)
    }

    /// Whether another state may follow.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Arriving, Self::Held | Self::Dead | Self::Cancelled)
                | (
                    Self::Held,
                    Self::Delivering | Self::Delivered | Self::Dead | Self::Cancelled
                )
                | (
                    Self::Delivering,
                    Self::Held | Self::Delivered | Self::Dead | Self::Cancelled
                )
                | (Self::Dead, Self::Held | Self::Cancelled)
        )
    }
}

/// The state of a parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelStatus {
    /// How far it is.
    pub state: ParcelState,
    /// Length of the file.
    pub bytes: u64,
    /// Bytes that are durable at the acceptor.
    pub arrived: u64,
    /// Bytes of the running attempt that are at the target.
    pub delivered: u64,
    /// Attempts to deliver it.
    pub attempts: u32,
    /// Seconds since it was opened.
    pub age_s: u64,
    /// Milliseconds until the next attempt, if it waits for one.
    pub next_ms: Option<u64>,
    /// The digest of the file, once it has arrived.
    pub digest: DigestValue,
    /// The target as a URL.
    pub target: String,
    /// Why the last attempt failed.
    pub fault: Option<Fault>,
    /// The fault is one of the target; `false` without a fault.
    pub is_fault_there: bool,
    /// The relay that has the parcel, as a URL; `None` if that is the acceptor itself. The state is
    /// what the acceptor knows of it from there.
    pub holder: Option<String>,
}

impl RelayCall {
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Open(_) => "open the parcel",
            Self::Status(_) => "look at the parcel",
            Self::End(_, ParcelEnd::Cancel) => "cancel the parcel",
            Self::End(_, ParcelEnd::Retry) => "put back the parcel",
            Self::List(_) => "list the parcels",
        }
    }

    /// The defined option bits of an operation; `None` for one that isn't of this module.
    pub(crate) fn options_defined(number: u8) -> Option<u8> {
        match number {
            operation::OPEN_PARCEL => Some(OVERWRITE | TREE | OF | IN_ORDER | AHEAD),
            operation::PARCEL_STATUS | operation::END_PARCEL | operation::LIST_PARCELS => {
                Some(USERS)
            }
            _ => None,
        }
    }

    /// The rules beyond the layout.
    pub(crate) fn check(&self, path_bytes_max: usize) -> Result<(), DecodeError> {
        let order = match self {
            Self::Open(order) => order,
            Self::Status(name) | Self::End(name, _) => return name.check(),
            Self::List(query) => {
                let is_known = (1..=ParcelQuery::ALL_STATES).contains(&query.states);
                return match is_known {
                    true => Ok(()),
                    false => Err(DecodeError::Invalid("states of parcels")),
                };
            }
        };
        crate::wire::check_path(&order.name, path_bytes_max, "name")?;
        if order.name.contains(&b'/') || matches!(&*order.name, b"" | b"." | b"..") {
            return Err(DecodeError::Invalid("name"));
        }
        let is_known = order.digest != DigestValue::None;
        if order.overwrite && order.tree || order.ahead && is_known {
            return Err(DecodeError::Invalid("options of a call"));
        }
        if let Some(name) = &order.in_order {
            check_most("name of an order", name.len(), ORDER_BYTES_MAX)?;
            if name.is_empty() {
                return Err(DecodeError::Invalid("name of an order"));
            }
        }
        if order.of == Some(order.id) {
            return Err(DecodeError::Invalid("id of a parcel"));
        }
        if !matches!(order.life_s, 1..=PARCEL_LIFE_S_MAX) {
            return Err(DecodeError::Invalid("life of a parcel"));
        }
        check_most("relays", order.next.len() + order.passed.len(), RELAYS_MAX)?;
        order.next.iter().try_for_each(|url| check_relay(url))?;
        check_target(&order.target)
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Open(order) => {
                w.u8(operation::OPEN_PARCEL);
                w.u8(flag(order.overwrite, OVERWRITE)
                    | flag(order.tree, TREE)
                    | flag(order.of.is_some(), OF)
                    | flag(order.in_order.is_some(), IN_ORDER)
                    | flag(order.ahead, AHEAD));
                w.raw(&order.id.0);
                w.u64(order.bytes);
                w.u32(order.life_s);
                w.text(&order.target, TARGET_BYTES_MAX);
                w.path(&order.name);
                w.digest(&order.digest);
                w.u8(u8::try_from(order.next.len()).unwrap_or(u8::MAX));
                order
                    .next
                    .iter()
                    .for_each(|url| w.text(url, RELAY_BYTES_MAX));
                w.u8(u8::try_from(order.passed.len()).unwrap_or(u8::MAX));
                order.passed.iter().for_each(|relay| w.raw(&relay.0));
                if let Some(of) = order.of {
                    w.raw(&of.0);
                }
                if let Some(name) = &order.in_order {
                    w.text(name, ORDER_BYTES_MAX);
                }
            }
            Self::Status(name) => {
                w.u8(operation::PARCEL_STATUS);
                name.encode(w);
            }
            Self::End(name, end) => {
                w.u8(operation::END_PARCEL);
                name.encode(w);
                w.u8(match end {
                    ParcelEnd::Cancel => 0,
                    ParcelEnd::Retry => 1,
                });
            }
            Self::List(query) => {
                w.u8(operation::LIST_PARCELS);
                w.u8(flag(query.all_users, USERS));
                w.u8(query.states);
                w.u64(query.from);
            }
        }
    }

    pub(crate) fn decode(
        number: u8,
        options: u8,
        r: &mut Reader<'_>,
        path_bytes_max: usize,
    ) -> Result<Self, DecodeError> {
        Ok(match number {
            operation::OPEN_PARCEL => Self::Open(Box::new(ParcelOrder {
                id: CopyId(r.array("id of a parcel")?),
                overwrite: options & OVERWRITE != 0,
                tree: options & TREE != 0,
                bytes: r.u64("length")?,
                life_s: r.u32("life of a parcel")?,
                target: r.text(TARGET_BYTES_MAX, "target")?,
                name: r.path(path_bytes_max, "name")?,
                digest: r.digest()?,
                next: relays(r, |r| r.text(RELAY_BYTES_MAX, "relay"))?,
                passed: relays(r, |r| Ok(RelayId(r.array("relay")?)))?,
                of: match options & OF != 0 {
                    true => Some(CopyId(r.array("id of a parcel")?)),
                    false => None,
                },
                in_order: match options & IN_ORDER != 0 {
                    true => Some(r.text(ORDER_BYTES_MAX, "name of an order")?),
                    false => None,
                },
                ahead: options & AHEAD != 0,
            })),
            operation::PARCEL_STATUS => Self::Status(ParcelName::decode(options, r)?),
            operation::LIST_PARCELS => Self::List(ParcelQuery {
                all_users: options & USERS != 0,
                states: r.u8("states of parcels")?,
                from: r.u64("number of a parcel")?,
            }),
            _ => Self::End(
                ParcelName::decode(options, r)?,
                match r.u8("end of a parcel")? {
                    0 => ParcelEnd::Cancel,
                    1 => ParcelEnd::Retry,
                    _ => return Err(DecodeError::Invalid("end of a parcel")),
                },
            ),
        })
    }
}

/// A list of relays.
fn relays<T>(
    r: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::from(r.u8("relays")?);
    check_most("relays", count, RELAYS_MAX)?;
    (0..count).map(|_| read(r)).collect()
}

fn check_relay(url: &str) -> Result<(), DecodeError> {
    check_most("relay", url.len(), RELAY_BYTES_MAX)?;
    match url.is_empty() {
        true => Err(DecodeError::Invalid("relay")),
        false => Ok(()),
    }
}

impl ParcelName {
    fn check(&self) -> Result<(), DecodeError> {
        self.user.as_deref().map_or(Ok(()), check_user)
    }

    /// The options of the call, and the name.
    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(flag(self.user.is_some(), USERS));
        w.raw(&self.id.0);
        if let Some(user) = &self.user {
            w.text(user, USER_BYTES_MAX);
        }
    }

    fn decode(options: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: CopyId(r.array("id of a parcel")?),
            user: match options & USERS != 0 {
                true => Some(r.text(USER_BYTES_MAX, USER)?),
                false => None,
            },
        })
    }
}

fn check_user(user: &str) -> Result<(), DecodeError> {
    check_most(USER, user.len(), USER_BYTES_MAX)?;
    match user.is_empty() {
        true => Err(DecodeError::Invalid(USER)),
        false => Ok(()),
    }
}

fn check_target(target: &str) -> Result<(), DecodeError> {
    check_most("target", target.len(), TARGET_BYTES_MAX)?;
    match target.is_empty() {
        true => Err(DecodeError::Invalid("target")),
        false => Ok(()),
    }
}

impl ParcelStatus {
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        check_target(&self.target)?;
        self.holder.as_deref().map_or(Ok(()), check_relay)?;
        let is_possible = self.arrived <= self.bytes
            && self.delivered <= self.bytes
            && (self.fault.is_some() || !self.is_fault_there)
            && (self.fault.is_some() || self.state != ParcelState::Dead);
        match is_possible {
            true => Ok(()),
            false => Err(DecodeError::Invalid("state of a parcel")),
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.state.number());
        w.u8(flag(self.next_ms.is_some(), NEXT)
            | flag(self.fault.is_some(), FAULT)
            | flag(self.is_fault_there, THERE)
            | flag(self.holder.is_some(), HOLDER));
        w.u64(self.bytes);
        w.u64(self.arrived);
        w.u64(self.delivered);
        w.u32(self.attempts);
        w.u64(self.age_s);
        w.u64(self.next_ms.unwrap_or(0));
        w.digest(&self.digest);
        w.text(&self.target, TARGET_BYTES_MAX);
        if let Some(fault) = &self.fault {
            w.fault(fault);
        }
        if let Some(holder) = &self.holder {
            w.text(holder, RELAY_BYTES_MAX);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const STATE: &str = "state of a parcel";
        let state = ParcelState::from_number(r.u8(STATE)?).ok_or(DecodeError::Invalid(STATE))?;
        let options = r.u8("options of an answer")?;
        if options & !(NEXT | FAULT | THERE | HOLDER) != 0 {
            return Err(DecodeError::Invalid("options of an answer"));
        }
        Ok(Self {
            state,
            bytes: r.u64("length")?,
            arrived: r.u64("bytes")?,
            delivered: r.u64("bytes")?,
            attempts: r.u32("number of attempts")?,
            age_s: r.u64("time")?,
            next_ms: present(options, NEXT, r.u64("time")?, "time")?,
            digest: r.digest()?,
            target: r.text(TARGET_BYTES_MAX, "target")?,
            fault: match options & FAULT != 0 {
                true => Some(r.fault()?),
                false => None,
            },
            is_fault_there: options & THERE != 0,
            holder: match options & HOLDER != 0 {
                true => Some(r.text(RELAY_BYTES_MAX, "relay")?),
                false => None,
            },
        })
    }
}

impl ParcelList {
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        check_most(
            "count of parcels",
            self.parcels.len(),
            usize::from(u16::MAX),
        )?;
        self.parcels.iter().try_for_each(|parcel| {
            check_user(&parcel.user)?;
            parcel.status.check()
        })
    }

    pub(crate) fn data_bytes(&self) -> usize {
        self.parcels.iter().map(ListedParcel::bytes).sum()
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(flag(self.next.is_some(), MORE));
        w.u64(self.next.unwrap_or(0));
        w.u16(u16::try_from(self.parcels.len()).unwrap_or(u16::MAX));
        for parcel in &self.parcels {
            w.raw(&parcel.id.0);
            w.text(&parcel.user, USER_BYTES_MAX);
            parcel.status.encode(w);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const OPTIONS: &str = "options of an answer";
        let options = r.u8(OPTIONS)?;
        if options & !MORE != 0 {
            return Err(DecodeError::Invalid(OPTIONS));
        }
        let next = present(
            options,
            MORE,
            r.u64("number of a parcel")?,
            "number of a parcel",
        )?;
        let count = r.u16("count of parcels")?;
        let mut parcel = || {
            Ok(ListedParcel {
                id: CopyId(r.array("id of a parcel")?),
                user: r.text(USER_BYTES_MAX, USER)?,
                status: ParcelStatus::decode(r)?,
            })
        };
        Ok(Self {
            next,
            parcels: (0..count).map(|_| parcel()).collect::<Result<_, _>>()?,
        })
    }
}

impl ListedParcel {
    /// Most bytes of it in a list.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let fault = self.status.fault.as_ref().map_or(0, |fault| {
            fault.operation.len() + fault.path.len() + fault.cause.len() + fault.hint.len() + 15
        });
        let holder = self
            .status
            .holder
            .as_ref()
            .map_or(0, |holder| 2 + holder.len());
        LISTED_FIXED_BYTES + self.user.len() + self.status.target.len() + fault + holder
    }
}

#[cfg(test)]
mod tests {
    use super::ParcelState::*;
    use super::*;

    #[test]
    fn a_parcel_leaves_an_end_only_where_somebody_asks_for_it() {
        let following = |state: ParcelState| {
            let next = ParcelState::ALL.into_iter();
            next.filter(|next| state.may_become(*next))
                .collect::<Vec<_>>()
        };
        assert_eq!(following(Arriving), [Held, Dead, Cancelled]);
        assert_eq!(following(Held), [Delivering, Delivered, Dead, Cancelled]);
        assert_eq!(following(Delivering), [Held, Delivered, Dead, Cancelled]);
        assert_eq!(following(Delivered), []);
        assert_eq!(following(Dead), [Held, Cancelled]);
        assert_eq!(following(Cancelled), []);
        for state in ParcelState::ALL {
            assert_eq!(ParcelState::from_number(state.number()), Some(state));
        }
        assert_eq!(ParcelState::from_number(6), None);
    }

    #[test]
    fn the_path_of_a_parcel_leads_to_it_and_no_other_path_does() {
        let id = CopyId([0xab; 16]);
        let path = parcel_path(id);
        assert_eq!(parcel_of(&path), Some(id));
        assert_eq!(parcel_of(&[b"/", &*path].concat()), Some(id));
        for other in [
            "",
            "/",
            ".xdfs-parcel/",
            ".xdfs-parcel/ab",
            "x/.xdfs-parcel/",
        ] {
            assert_eq!(parcel_of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(parcel_of(&[&*path, b"/x"].concat()), None);
        assert_eq!(parcel_of(&[b"//", &*path].concat()), None);
    }
}
