//! The thread that opens and accepts the streams of all bundles of the process, and watches the
//! time for them. It moves data only of bundles whose users have left or don't call.
//!
//! A stream belongs to this thread until its opening exchange is complete, and then to its bundle.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

use xdfs_crowd::{Crowd, Network};
use xdfs_sys::poll::{Event, Notifier, Poller, Token};

use super::bundle::{Bundle, Sizes};
use super::core::{Core, First, Shared, new_key};
use super::door::Door;
use super::options::Options;
use super::wire::{
    ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Join, Secret, Side, Verdict, is_proof, proof,
};
use crate::stream::Stream;

/// The step of its clock.
const TICK: Duration = Duration::from_millis(50);

/// Time for the opening exchange of an accepted stream.
const ACCEPTING: Duration = Duration::from_secs(10);

/// Time for a stream to be opened: the first one, and one that joins.
const OPENING: Duration = Duration::from_secs(120);
const JOINING: Duration = Duration::from_secs(15);

/// Places of a listener for streams whose opening exchange isn't complete.
const HALF_OPEN_MAX: usize = 512;
/// Streams that are accepted in a row, before those that are open already get their turn.
const ACCEPTS: usize = 64;

static SERVICE: LazyLock<Result<Service, (ErrorKind, String)>> =
    LazyLock::new(|| Service::start().map_err(|e| (e.kind(), e.to_string())));

#[derive(Debug)]
struct Service {
    inbox: Arc<Mutex<Vec<Message>>>,
    notifier: Notifier,
}

#[derive(Debug)]
enum Message {
    Half(Half),
    Linger(Arc<Shared>),
    Listen(Arc<Door>),
    Watch(Weak<Shared>),
}

impl Service {
    fn start() -> io::Result<Self> {
        let poller = Poller::new()?;
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let notifier = poller.notifier();
        let worker = Worker {
            poller,
            inbox: Arc::clone(&inbox),
            half: HashMap::new(),
            doors: HashMap::new(),
            behind: Vec::new(),
            watched: HashMap::new(),
            lingering: HashMap::new(),
            bundles: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("xdfs-ptcp".to_owned());
        thread.spawn(move || worker.run())?;
        Ok(Self { inbox, notifier })
    }

    fn send(&self, message: Message) {
        let mut inbox = self.inbox.lock().unwrap_or_else(|e| e.into_inner());
        inbox.push(message);
        drop(inbox);
        self.notifier.notify(Event {
            token: Token(0),
            readable: true,
            writable: false,
        });
    }
}

fn service() -> io::Result<&'static Service> {
    let failed = |(kind, why): &(ErrorKind, String)| io::Error::new(*kind, why.clone());
    SERVICE.as_ref().map_err(failed)
}

/// Opens a bundle over its first stream.
pub(super) fn open(
    shared: &Arc<Shared>,
    stream: Box<dyn Stream>,
    options: &Options,
) -> io::Result<()> {
    let task = Task::Create {
        shared: Arc::downgrade(shared),
        options: options.clone(),
    };
    service()?.send(Message::Half(Half::new(stream, task, OPENING)));
    Ok(())
}

/// Accepts the streams of a listener.
pub(super) fn listen(door: &Arc<Door>) -> io::Result<()> {
    service()?.send(Message::Listen(Arc::clone(door)));
    Ok(())
}

/// Looks after a bundle that needs time.
pub(super) fn watch(shared: &Arc<Shared>) {
    if let Ok(service) = service() {
        service.send(Message::Watch(Arc::downgrade(shared)));
    }
}

/// Delivers what a bundle still has after its user has left.
pub(super) fn linger(shared: &Arc<Shared>) {
    if let Ok(service) = service() {
        service.send(Message::Linger(Arc::clone(shared)));
    }
}

/// A stream in its opening exchange.
#[derive(Debug)]
struct Half {
    stream: Box<dyn Stream>,
    task: Task,
    until: Instant,
    /// The stream below is connected and its transforms are open.
    is_open: bool,
    out: Vec<u8>,
    out_at: usize,
    input: Vec<u8>,
    input_at: usize,
}

#[derive(Debug)]
enum Task {
    /// Opens a bundle.
    Create {
        shared: Weak<Shared>,
        options: Options,
    },
    /// Opens another stream of one.
    Join {
        shared: Weak<Shared>,
        join: Join,
        secret: Secret,
    },
    /// Reads a hello.
    Accept { door: Weak<Door> },
    /// Writes the answer to it.
    Answer { door: Weak<Door>, then: Then },
}

/// What an acceptor does once its answer is written.
#[derive(Debug)]
enum Then {
    Drop,
    Create {
        hello: Hello,
        streams: u16,
        window: u64,
    },
    Join {
        shared: Weak<Shared>,
        index: usize,
    },
}

impl Half {
    fn new(stream: Box<dyn Stream>, task: Task, time: Duration) -> Self {
        let expected = match task {
            Task::Accept { .. } => HELLO_BYTES,
            _ => ANSWER_BYTES,
        };
        let until = Instant::now() + time;
        Self {
            stream,
            task,
            until,
            is_open: false,
            out: Vec::new(),
            out_at: 0,
            input: vec![0; expected],
            input_at: 0,
        }
    }

    fn binding(&self) -> [u8; 32] {
        let protection = self.stream.protection();
        protection.map_or([0; 32], |protection| protection.binding)
    }

    /// Writes and reads as far as possible. Whether both are complete.
    fn exchange(&mut self) -> io::Result<bool> {
        if !self.is_open {
            if !self.stream.finish_open()? {
                return Ok(false);
            }
            self.is_open = true;
            self.say_hello();
        }
        while self.out_at < self.out.len() {
            let rest = &self.out[self.out_at..];
            match self.stream.write_vectored(&[IoSlice::new(rest)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.out_at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        if self.stream.has_unflushed() {
            match self.stream.flush() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                done => done?,
            }
        }
        while self.input_at < self.input.len() {
            let rest = &mut self.input[self.input_at..];
            match self.stream.read_vectored(&mut [IoSliceMut::new(rest)]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input_at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// What an opener says first.
    fn say_hello(&mut self) {
        let binding = self.binding();
        let hello = match &mut self.task {
            Task::Create { shared, options } => {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let is_local = self.stream.capabilities().local;
                let core = shared.core();
                let Some(dial) = &core.dial else {
                    return;
                };
                Hello::Create {
                    streams: options.streams,
                    id: dial.id,
                    window: options.window(options.streams, is_local),
                    secret: dial.secret.clone(),
                }
            }
            Task::Join { join, secret, .. } => {
                join.proof = proof(secret, Side::Opener, join, &binding);
                Hello::Join(*join)
            }
            Task::Accept { .. } | Task::Answer { .. } => return,
        };
        self.out = hello.encode().to_vec();
    }
}

/// What the thread knows.
struct Worker {
    poller: Poller,
    inbox: Arc<Mutex<Vec<Message>>>,
    half: HashMap<usize, Half>,
    doors: HashMap<usize, (Weak<Door>, Crowd<usize>)>,
    /// The listeners at which more streams may wait.
    behind: Vec<usize>,
    watched: HashMap<usize, Weak<Shared>>,
    lingering: HashMap<usize, Arc<Shared>>,
    /// The bundles that streams can join: their listener, and their secret.
    bundles: HashMap<[u8; 16], (usize, Weak<Shared>, Secret)>,
}

impl Worker {
    fn run(mut self) {
        let mut events = Vec::new();
        let mut ticked = Instant::now();
        loop {
            let mut crowds = self.doors.values().map(|(_, crowd)| crowd);
            let is_idle = self.half.is_empty()
                && self.watched.is_empty()
                && self.lingering.is_empty()
                && crowds.all(|crowd| crowd.wakes_at().is_none());
            let timeout = match self.behind.is_empty() {
                true => (!is_idle).then_some(TICK),
                false => Some(Duration::ZERO),
            };
            events.clear();
            if self.poller.wait(&mut events, timeout).is_err() {
                // Nothing else can be done about it than not to spin.
                std::thread::park_timeout(TICK);
            }
            self.take_messages();
            for event in &events {
                self.handle(event.token.0);
            }
            for key in std::mem::take(&mut self.behind) {
                self.accept_at(key);
            }
            let now = Instant::now();
            if now >= ticked + TICK {
                ticked = now;
                self.tick(now);
            }
        }
    }

    fn take_messages(&mut self) {
        let mut inbox = self.inbox.lock().unwrap_or_else(|e| e.into_inner());
        let messages = std::mem::take(&mut *inbox);
        drop(inbox);
        for message in messages {
            match message {
                Message::Half(half) => self.begin(half),
                Message::Linger(shared) => {
                    shared.core().linger(&self.poller, Token(shared.key));
                    self.watched.remove(&shared.key);
                    self.lingering.insert(shared.key, shared);
                }
                Message::Listen(door) => {
                    if let Err(e) = door.register(&mut self.poller) {
                        let _ = door.ready.push(Err(e));
                    }
                    let crowd = Crowd::new(HALF_OPEN_MAX);
                    self.doors.insert(door.key, (Arc::downgrade(&door), crowd));
                    self.accept(&door);
                }
                Message::Watch(shared) => {
                    if let Some(known) = shared.upgrade() {
                        self.watched.insert(known.key, shared);
                    }
                }
            }
        }
    }

    fn handle(&mut self, key: usize) {
        if self.half.contains_key(&key) {
            self.advance(key);
        } else if self.doors.contains_key(&key) {
            self.accept_at(key);
        } else if let Some(shared) = self.lingering.get(&key).cloned() {
            self.tick_lingering(&shared);
        }
    }

    fn tick(&mut self, now: Instant) {
        let own = self.half.iter().filter(|(_, half)| half.until <= now);
        let mut late: Vec<usize> = own.map(|(key, _)| *key).collect();
        let crowds = self.doors.values().map(|(_, crowd)| crowd);
        late.extend(
            crowds
                .flat_map(|crowd| crowd.late(now, ACCEPTING))
                .map(|(key, _)| key),
        );
        for key in late {
            self.end(key, Err(ErrorKind::TimedOut.into()));
        }
        for (_, crowd) in self.doors.values_mut() {
            crowd.tick(now);
        }
        // A stream that nothing needs any more is closed, so that the peer waits for none.
        let is_needed = |half: &Half| match &half.task {
            Task::Join { shared, .. } => shared
                .upgrade()
                .is_some_and(|shared| shared.try_core().is_none_or(|core| core.takes_streams())),
            _ => true,
        };
        self.half.retain(|_, half| is_needed(half));
        for shared in self.lingering.values().cloned().collect::<Vec<_>>() {
            self.tick_lingering(&shared);
        }
        let watched: Vec<_> = self.watched.keys().copied().collect();
        for key in watched {
            let Some(shared) = self.watched.get(&key).and_then(Weak::upgrade) else {
                self.watched.remove(&key);
                continue;
            };
            self.tick_watched(&shared);
        }
        self.doors
            .retain(|_, (door, _)| door.upgrade().is_some_and(|door| door.is_open()));
        self.bundles
            .retain(|_, (_, shared, _)| shared.strong_count() > 0);
        for key in self.doors.keys().copied().collect::<Vec<_>>() {
            self.accept_at(key);
        }
    }

    fn tick_watched(&mut self, shared: &Arc<Shared>) {
        // A user in a call looks after it.
        let Some(mut core) = shared.try_core() else {
            return;
        };
        if core.tick() {
            core.is_watched = false;
            drop(core);
            self.watched.remove(&shared.key);
            return;
        }
        self.dial(shared, core);
    }

    fn tick_lingering(&mut self, shared: &Arc<Shared>) {
        let mut core = shared.core();
        if core.tick() {
            drop(core);
            self.lingering.remove(&shared.key);
            return;
        }
        self.dial(shared, core);
    }

    /// Opens the streams that a bundle lacks.
    fn dial(&mut self, shared: &Arc<Shared>, mut core: std::sync::MutexGuard<'_, Core>) {
        let due = core.dials();
        let mut halves = Vec::new();
        for (index, serial) in due {
            let Some(dial) = &core.dial else {
                return;
            };
            let join = Join {
                // Places are at most `STREAMS_MAX`.
                index: index as u16,
                serial,
                id: dial.id,
                proof: [0; 32],
            };
            match dial.stack.open(&dial.endpoint) {
                Ok(stream) => {
                    let task = Task::Join {
                        shared: Arc::downgrade(shared),
                        join,
                        secret: dial.secret.clone(),
                    };
                    halves.push(Half::new(stream, task, JOINING));
                }
                Err(_) => core.dial_failed(index, false),
            }
        }
        drop(core);
        halves.into_iter().for_each(|half| self.begin(half));
    }

    fn accept_at(&mut self, key: usize) {
        if let Some(door) = self.doors.get(&key).and_then(|(door, _)| door.upgrade()) {
            self.accept(&door);
        }
    }

    /// Accepts streams that wait at a listener.
    fn accept(&mut self, door: &Arc<Door>) {
        for _ in 0..ACCEPTS {
            match door.accept() {
                Some(Ok(stream)) => {
                    let network = Network::of_peer(&stream.peer());
                    let task = Task::Accept {
                        door: Arc::downgrade(door),
                    };
                    let key = new_key();
                    let displaced = self.doors.get_mut(&door.key).and_then(|(_, crowd)| {
                        let listener = format_args!("ptcp:{}", door.local);
                        crowd.enter(key, network, &listener, Instant::now())
                    });
                    if let Some(displaced) = displaced {
                        self.end(displaced, Err(ErrorKind::ConnectionAborted.into()));
                    }
                    self.begin_as(key, Half::new(stream, task, ACCEPTING));
                }
                Some(Err(e)) => {
                    let _ = door.ready.push(Err(e));
                    return;
                }
                None => return,
            }
        }
        self.behind.push(door.key);
    }

    fn begin(&mut self, half: Half) {
        self.begin_as(new_key(), half);
    }

    fn begin_as(&mut self, key: usize, mut half: Half) {
        let registered = half.stream.register(&mut self.poller, Token(key));
        self.half.insert(key, half);
        match registered {
            Ok(()) => self.advance(key),
            Err(e) => self.end(key, Err(e)),
        }
    }

    fn advance(&mut self, key: usize) {
        let Some(half) = self.half.get_mut(&key) else {
            return;
        };
        match half.exchange() {
            Ok(false) => {}
            Ok(true) => self.complete(key),
            Err(e) => self.end(key, Err(e)),
        }
    }

    /// The exchange of a task is complete.
    fn complete(&mut self, key: usize) {
        let Some(half) = self.half.get_mut(&key) else {
            return;
        };
        if let Task::Accept { door } = &half.task {
            let door = door.clone();
            let (answer, then) = self.answer(key, &door);
            let of_door = door
                .upgrade()
                .and_then(|door| self.doors.get_mut(&door.key));
            if let Some((_, crowd)) = of_door {
                crowd.speaks(key);
            }
            let Some(half) = self.half.get_mut(&key) else {
                return;
            };
            half.task = Task::Answer { door, then };
            half.out = answer.encode().to_vec();
            half.out_at = 0;
            return self.advance(key);
        }
        self.end(key, Ok(()));
    }

    /// What is answered to the hello of an accepted stream.
    fn answer(&self, key: usize, door: &Weak<Door>) -> (Answer, Then) {
        let refusal = |verdict| (Answer::refusal(verdict), Then::Drop);
        let (Some(half), Some(door)) = (self.half.get(&key), door.upgrade()) else {
            return refusal(Verdict::Refused);
        };
        let mut bytes = [0; HELLO_BYTES];
        bytes.copy_from_slice(&half.input);
        let hello = match Hello::decode(&bytes) {
            Ok(Some(hello)) => hello,
            Ok(None) => return refusal(Verdict::Version),
            Err(_) => return refusal(Verdict::Refused),
        };
        let binding = half.binding();
        match hello {
            Hello::Create {
                streams,
                id,
                ref secret,
                ..
            } => {
                if self.bundles.contains_key(&id) {
                    return refusal(Verdict::Refused);
                }
                let streams = streams.min(door.options.streams);
                let is_local = half.stream.capabilities().local;
                let window = door.options.window(streams, is_local);
                let first = Join {
                    index: 0,
                    serial: 0,
                    id,
                    proof: [0; 32],
                };
                let answer = Answer {
                    verdict: Verdict::Accepted,
                    streams,
                    window,
                    proof: proof(secret, Side::Acceptor, &first, &binding),
                };
                let then = Then::Create {
                    hello,
                    streams,
                    window,
                };
                (answer, then)
            }
            Hello::Join(join) => {
                let Some((at, shared, secret)) = self.bundles.get(&join.id) else {
                    return refusal(Verdict::Refused);
                };
                let index = usize::from(join.index);
                let is_proved = is_proof(secret, Side::Opener, &join, &binding, &join.proof);
                let known = shared.upgrade().filter(|_| *at == door.key && is_proved);
                let Some(known) = known.filter(|s| s.core().admit(index, join.serial)) else {
                    return refusal(Verdict::Refused);
                };
                let answer = Answer {
                    verdict: Verdict::Accepted,
                    streams: 1,
                    window: 1,
                    proof: proof(secret, Side::Acceptor, &join, &binding),
                };
                let shared = Arc::downgrade(&known);
                (answer, Then::Join { shared, index })
            }
        }
    }

    /// Ends the exchange of a stream.
    fn end(&mut self, key: usize, result: io::Result<()>) {
        let Some(mut half) = self.half.remove(&key) else {
            return;
        };
        let result = result.and_then(|()| half.stream.deregister(&mut self.poller));
        let binding = half.binding();
        let Half {
            stream,
            task,
            input,
            ..
        } = half;
        match task {
            Task::Create { shared, options } => {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let opened = result.and_then(|()| create(&shared, &options, &input, &binding));
                let mut core = shared.core();
                match opened {
                    Ok(bundle) if self.lingering.contains_key(&shared.key) => {
                        core.begin(bundle, stream);
                        drop(core);
                        self.tick_lingering(&shared);
                    }
                    Ok(bundle) => {
                        core.begin(bundle, stream);
                        core.is_watched = true;
                        drop(core);
                        self.watched.insert(shared.key, Arc::downgrade(&shared));
                        self.tick_watched(&shared);
                    }
                    Err(e) => core.fail(e.kind(), e.to_string()),
                }
            }
            Task::Join {
                shared,
                join,
                secret,
            } => {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let index = usize::from(join.index);
                let answer = result.and_then(|()| answered(&secret, &join, &input, &binding));
                let mut core = shared.core();
                match answer {
                    Ok(_) => core.attach(index, stream),
                    Err(e) => {
                        core.dial_failed(
                            index,
                            e.kind() == ErrorKind::ConnectionRefused && e.get_ref().is_some(),
                        );
                    }
                }
            }
            Task::Accept { door } => self.leave(&door, key),
            Task::Answer { door, then } => {
                self.leave(&door, key);
                if result.is_ok() {
                    self.accepted(stream, &door, then);
                }
            }
        }
    }

    /// A stream of a listener isn't in its opening exchange any more.
    fn leave(&mut self, door: &Weak<Door>, key: usize) {
        let of_door = door
            .upgrade()
            .and_then(|door| self.doors.get_mut(&door.key));
        if let Some((_, crowd)) = of_door {
            crowd.leave(key);
        }
    }

    /// The answer to an accepted stream is written.
    fn accepted(&mut self, stream: Box<dyn Stream>, door: &Weak<Door>, then: Then) {
        match then {
            Then::Drop => {}
            Then::Join { shared, index } => {
                if let Some(shared) = shared.upgrade() {
                    shared.core().attach(index, stream);
                }
            }
            Then::Create {
                hello,
                streams,
                window,
            } => {
                let Hello::Create {
                    id,
                    window: peer_window,
                    secret,
                    ..
                } = hello
                else {
                    return;
                };
                let Some(door) = door.upgrade() else {
                    return;
                };
                let bundle = Bundle::new(Sizes {
                    streams: usize::from(streams),
                    piece: door.options.piece,
                    window,
                    peer_window,
                });
                let mut core = Core::new(First::of(&*stream), None, door.options.patience);
                core.begin(bundle, stream);
                let shared = Arc::new(Shared::new(core));
                let entry = (door.key, Arc::downgrade(&shared), secret);
                self.bundles.insert(id, entry);
                if let Err(Ok(refused)) = door.ready.push(Ok(shared))
                    && refused.core().leave()
                {
                    linger(&refused);
                }
            }
        }
    }
}

/// The bundle of an opener, from the answer to its hello.
fn create(
    shared: &Arc<Shared>,
    options: &Options,
    input: &[u8],
    binding: &[u8; 32],
) -> io::Result<Bundle> {
    let mut core = shared.core();
    let is_local = core.first.capabilities.local;
    let Some(dial) = &mut core.dial else {
        return Err(ErrorKind::InvalidInput.into());
    };
    let first = Join {
        index: 0,
        serial: 0,
        id: dial.id,
        proof: [0; 32],
    };
    let answer = answered(&dial.secret, &first, input, binding)?;
    let streams = answer.streams.min(options.streams);
    dial.granted(usize::from(streams));
    Ok(Bundle::new(Sizes {
        streams: usize::from(streams),
        piece: options.piece,
        window: options.window(options.streams, is_local),
        peer_window: answer.window,
    }))
}

/// The answer to a hello, if the stream is part of the bundle now.
fn answered(secret: &Secret, join: &Join, input: &[u8], binding: &[u8; 32]) -> io::Result<Answer> {
    let mut bytes = [0; ANSWER_BYTES];
    bytes.copy_from_slice(input);
    let invalid = |e| io::Error::new(ErrorKind::InvalidData, e);
    let answer = Answer::decode(&bytes).map_err(invalid)?;
    let refused = |why| Err(io::Error::new(ErrorKind::ConnectionRefused, why));
    match answer.verdict {
        Verdict::Accepted => {}
        Verdict::Version => return refused("the peer has another version of ptcp"),
        Verdict::Refused => return refused("the peer refuses the stream"),
    }
    if !is_proof(secret, Side::Acceptor, join, binding, &answer.proof) {
        return refused("the peer doesn't know the bundle's secret");
    }
    Ok(answer)
}
