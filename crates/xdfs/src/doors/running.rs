//! All doors of a server: their addresses, and their threads.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xdfs_access::{Door, DoorAddress, DoorControl, Findings, OpenDoor, SettingFault};
use xdfs_proto::{Code, Fault};

/// Checks that each door has a name of its own, by which a reload finds its new settings.
///
/// # Errors
/// Two have the same one.
pub(crate) fn check_names(doors: &[Arc<dyn Door>]) -> Result<(), Box<SettingFault>> {
    let names: Vec<_> = doors.iter().map(|door| door.name()).collect();
    let twice = (1..names.len()).find(|at| names[..*at].contains(&names[*at]));
    let Some(number) = twice else { return Ok(()) };
    let setting = names[number];
    let cause = format!("the server has two doors with the name '{setting}'");
    Err(Box::new(SettingFault {
        setting,
        number: 1,
        fault: Fault::new(Code::InvalidArgument, "add a door", cause),
    }))
}

/// Notes which of the addresses of a door the system would refuse: as the machine doesn't have
/// them, or since they are `taken` by the doors before it. Then they are taken.
pub(crate) fn check_addresses(
    addresses: Vec<DoorAddress>,
    taken: &mut Vec<DoorAddress>,
    findings: &mut Findings,
) {
    let is_same = |a: &DoorAddress, b: &DoorAddress| (a.setting, a.number) == (b.setting, b.number);
    for of_setting in addresses.chunk_by(is_same) {
        let mut clashing = of_setting
            .iter()
            .filter(|own| taken.iter().any(|at| at.clashes(own)));
        if let Some(own) = clashing.next() {
            findings.note::<()>(own.setting, own.number, Err(listened_twice(own)));
        }
        let unfit = of_setting.iter().filter_map(is_elsewhere);
        findings.unfit.extend(unfit);
        taken.extend_from_slice(of_setting);
    }
}

/// The fault of an address that this machine doesn't have.
fn is_elsewhere(wanted: &DoorAddress) -> Option<SettingFault> {
    let mut address = wanted.socket()?;
    // Only an attempt shows it. No peer can connect to a port of UDP that is closed at once,
    // and any port will do.
    address.set_port(0);
    let error = UdpSocket::bind(address).err()?;
    let operation = format!("listen on {}", wanted.shown);
    let fault = match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            let cause = "this machine doesn't have the address";
            Fault::new(Code::InvalidArgument, operation, cause)
                .hint("name one of its addresses, or all of them: 0.0.0.0 or [::]")
        }
        _ => Fault::from_io(operation, "", &error),
    };
    Some(SettingFault {
        setting: wanted.setting,
        number: wanted.number,
        fault,
    })
}

fn listened_twice(address: &DoorAddress) -> Fault {
    let operation = format!("listen on {}", address.shown);
    let cause = "another listener of these settings has the address";
    Fault::new(Code::InvalidArgument, operation, cause).hint("give each listener a port of its own")
}

/// A door that listens, with its settings.
pub(crate) type Opened = (Arc<dyn Door>, OpenDoor);

/// Serves at `first` in this thread, and at the other doors in threads of their own, until all are
/// drained. If `first` fails, or a thread can't be started, the others end at once.
///
/// # Errors
/// The first failure of a door, or a thread can't be started.
pub(crate) fn run(first: OpenDoor, others: Vec<Opened>) -> Result<(), Fault> {
    let mut running = Vec::new();
    let mut result = Ok(());
    for (settings, door) in others {
        match RunningDoor::start(&*settings, door) {
            Ok(door) => running.push(door),
            Err(fault) => {
                result = Err(fault);
                break;
            }
        }
    }
    if result.is_ok() {
        result = (first.run)();
    }
    let failed = result.is_err();
    for door in running {
        let finished = door.finish(failed);
        result = result.and(finished);
    }
    result
}

/// A door that serves in a thread of its own.
struct RunningDoor {
    title: &'static str,
    control: Arc<dyn DoorControl>,
    thread: JoinHandle<Result<(), Fault>>,
}

impl RunningDoor {
    fn start(settings: &dyn Door, door: OpenDoor) -> Result<Self, Fault> {
        let title = settings.title();
        let thread = thread::Builder::new().name(format!("xdfs-{}", settings.name()));
        let thread = thread.spawn(door.run);
        let fault = |error| Fault::from_io(format!("serve {title}"), "", &error);
        Ok(Self {
            title,
            control: door.control,
            thread: thread.map_err(fault)?,
        })
    }

    /// Waits until it is drained; at once if the rest of the server has `failed`.
    ///
    /// # Errors
    /// Its listeners failed.
    fn finish(self, failed: bool) -> Result<(), Fault> {
        if failed {
            self.control.drain(Duration::ZERO);
        }
        self.thread.join().unwrap_or_else(|_| {
            let operation = format!("serve {}", self.title);
            let cause = "the thread of the listeners has panicked";
            Err(Fault::new(Code::Internal, operation, cause))
        })
    }
}
