//! What breaks single channels: a proxy for those over TCP, and for others a driver on top of the
//! stack of a client. The driver drops nothing by itself: the engine gives up the channel, and the
//! server learns of it as its transport tells it.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};

use xdfs::Address;
use xdfs::drivers::{
    Driver, DriverSpec, Drivers, End, Output, Registry, Room, StackSpec, Transform,
};
use xdfs_testkit::proxy::{FaultProxy, Faults, Plan};

/// The channels of a scene, each with a number.
pub(crate) trait Line: fmt::Debug + Send + Sync {
    /// Leads to this server from now on, and returns where clients connect.
    fn lead_to(&self, server: &Address) -> Address;

    /// The drivers of a client whose channels go over `stack`.
    fn drivers(&self, stack: StackSpec) -> Drivers;

    /// The plan of the next new channel; called again, of the one after it.
    fn push_plan(&self, plan: Plan);

    /// The plan of all new channels that have none of their own.
    fn set_plan(&self, plan: Plan);

    /// Whether new channels fail at once.
    fn block_new(&self, blocked: bool);

    /// How many channels there were so far.
    fn accepted(&self) -> u64;

    /// The living ones, oldest first.
    fn live(&self) -> Vec<u64>;

    /// Breaks one, and says whether it lived.
    fn cut(&self, id: u64) -> bool;

    /// Lets nothing more through one, and keeps it open.
    fn hang(&self, id: u64) -> bool;

    /// Bytes so far: to the server, and to the client.
    fn forwarded(&self) -> (u64, u64);

    fn cut_nth(&self, nth: usize) -> bool {
        self.live().get(nth).is_some_and(|&id| self.cut(id))
    }

    fn cut_all(&self) {
        for id in self.live() {
            self.cut(id);
        }
    }
}

impl Line for FaultProxy {
    fn lead_to(&self, server: &Address) -> Address {
        let Address::Host { host, port } = server else {
            panic!("{server:?}")
        };
        self.set_target((host.parse::<std::net::IpAddr>().unwrap(), *port).into());
        self.addr().to_string().parse().unwrap()
    }

    fn drivers(&self, stack: StackSpec) -> Drivers {
        Drivers {
            stacks: vec![stack],
            ..Drivers::default()
        }
    }

    fn push_plan(&self, plan: Plan) {
        self.push_plan(plan);
    }

    fn set_plan(&self, plan: Plan) {
        self.set_plan(plan);
    }

    fn block_new(&self, blocked: bool) {
        self.block_new(blocked);
    }

    fn accepted(&self) -> u64 {
        self.accepted()
    }

    fn live(&self) -> Vec<u64> {
        self.live()
    }

    fn cut(&self, id: u64) -> bool {
        self.cut(id)
    }

    fn hang(&self, id: u64) -> bool {
        self.hang(id)
    }

    fn forwarded(&self) -> (u64, u64) {
        self.forwarded()
    }
}

/// What the drivers of clients obey.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switch(Arc<Mutex<Channels>>);

#[derive(Debug, Default)]
struct Channels {
    plan: Plan,
    /// Plans of the next channels; each is used once, and before `plan`.
    next: VecDeque<Plan>,
    blocked: bool,
    accepted: u64,
    live: BTreeMap<u64, State>,
    moved: [u64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Cut,
    Hung,
    Open,
}

impl Switch {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap()
    }

    fn turn(&self, id: u64, to: State) -> bool {
        let mut channels = self.channels();
        let found = channels.live.get_mut(&id).filter(|s| **s == State::Open);
        found.map(|state| *state = to).is_some()
    }

    fn channel(&self) -> io::Result<Channel> {
        let mut channels = self.channels();
        if channels.blocked {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let id = channels.accepted;
        channels.accepted += 1;
        channels.live.insert(id, State::Open);
        let plan = channels.next.pop_front();
        let plan = plan.unwrap_or_else(|| channels.plan.clone());
        Ok(Channel {
            id,
            plan,
            moved: [0; 2],
            switch: self.clone(),
        })
    }
}

impl Line for Switch {
    fn lead_to(&self, server: &Address) -> Address {
        server.clone()
    }

    fn drivers(&self, stack: StackSpec) -> Drivers {
        let switch = self.clone();
        let driver = Driver::transform("line", &[], move |()| {
            let switch = switch.clone();
            move |_: End| switch.channel()
        });
        Drivers {
            registry: Registry::standard().with(driver),
            stacks: vec![stack.with(DriverSpec::new("line").unwrap())],
        }
    }

    fn push_plan(&self, plan: Plan) {
        self.channels().next.push_back(plan);
    }

    fn set_plan(&self, plan: Plan) {
        self.channels().plan = plan;
    }

    fn block_new(&self, blocked: bool) {
        self.channels().blocked = blocked;
    }

    fn accepted(&self) -> u64 {
        self.channels().accepted
    }

    fn live(&self) -> Vec<u64> {
        let channels = self.channels();
        let live = channels.live.iter().filter(|(_, s)| **s != State::Cut);
        live.map(|(id, _)| *id).collect()
    }

    fn cut(&self, id: u64) -> bool {
        self.turn(id, State::Cut)
    }

    fn hang(&self, id: u64) -> bool {
        self.turn(id, State::Hung)
    }

    fn forwarded(&self) -> (u64, u64) {
        self.channels().moved.into()
    }
}

/// The end of a channel at the client.
#[derive(Debug)]
struct Channel {
    id: u64,
    plan: Plan,
    /// Bytes to the server and to the client.
    moved: [u64; 2],
    switch: Switch,
}

const UP: usize = 0;
const DOWN: usize = 1;

impl Channel {
    fn faults(&self, direction: usize) -> &Faults {
        [&self.plan.up, &self.plan.down][direction]
    }

    /// How many of the next bytes may pass; none of a channel that hangs.
    fn allowed(&self, direction: usize) -> io::Result<usize> {
        let faults = self.faults(direction);
        let stops = [faults.cut_after, faults.close_after, faults.hang_after];
        let stop = stops.into_iter().flatten().min().unwrap_or(u64::MAX);
        let left = stop.saturating_sub(self.moved[direction]);
        if left == 0 {
            let is_hung = faults.hang_after == Some(stop);
            let state = if is_hung { State::Hung } else { State::Cut };
            self.switch.turn(self.id, state);
        }
        match self.switch.channels().live[&self.id] {
            State::Cut if faults.close_after == Some(stop) => Err(ErrorKind::UnexpectedEof.into()),
            State::Cut => Err(ErrorKind::ConnectionReset.into()),
            State::Hung => Ok(0),
            State::Open => Ok(usize::try_from(left).unwrap_or(usize::MAX)),
        }
    }

    /// The next bytes as they pass.
    fn passing<'a>(&self, direction: usize, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        let flip = self.faults(direction).flip;
        let flip = flip.filter(|flip| flip.byte >= self.moved[direction]);
        if let Some(flip) = flip {
            let at = usize::try_from(flip.byte - self.moved[direction]).unwrap();
            if at < bytes.len() {
                bytes.to_mut()[at] ^= 1 << flip.bit;
            }
        }
        bytes
    }

    fn passed(&mut self, direction: usize, count: usize) {
        self.moved[direction] += count as u64;
        self.switch.channels().moved[direction] += count as u64;
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.switch.channels().live.remove(&self.id);
    }
}

impl Transform for Channel {
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let before = self.moved[UP];
        for slice in content {
            let allowed = self.allowed(UP)?;
            let room = out.room();
            let count = room.len().min(slice.len()).min(allowed);
            room[..count].copy_from_slice(&self.passing(UP, &slice[..count]));
            out.advance(count);
            self.passed(UP, count);
            if count < slice.len() {
                break;
            }
        }
        match usize::try_from(self.moved[UP] - before).unwrap() {
            // As with a full socket; nobody will ever say that there is room.
            0 if content.iter().any(|slice| !slice.is_empty()) => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        match self.allowed(DOWN)? {
            // What comes is lost.
            0 => Ok(encoded.len()),
            allowed => {
                let bytes = self.passing(DOWN, &encoded[..encoded.len().min(allowed)]);
                let count = content.put(&bytes);
                self.passed(DOWN, count);
                Ok(count)
            }
        }
    }

    fn end(&mut self, _: &[u8]) -> io::Result<()> {
        match self.allowed(DOWN)? {
            // Nor does the end get through.
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}
