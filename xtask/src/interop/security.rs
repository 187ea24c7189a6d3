//! The rows with TLS and GSI. Beside the bytes, what went over the wire has to be as the row says:
//! see [`super::witness`].

use std::fs;

use super::clients::{Client, Direction, Gsi, How, Level, Tls};
use super::rows::{BYTES, Cell, HOW, Outcome, Row, make, same};
use super::servers::{Server, Special};
use super::tools::Kind;
use super::witness::{Data, Version, seen, watched};

use Direction::{Down, Up};

/// All of them, in the order of the tables.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "TLS 1.3, PROT P, download",
        run: |cell| cell.tls(Down, true, "1.3"),
    },
    Row {
        name: "TLS 1.3, PROT P, upload",
        run: |cell| cell.tls(Up, true, "1.3"),
    },
    Row {
        name: "TLS 1.3, PROT C, download",
        run: |cell| cell.tls(Down, false, "1.3"),
    },
    Row {
        name: "TLS 1.3, PROT C, upload",
        run: |cell| cell.tls(Up, false, "1.3"),
    },
    Row {
        name: "TLS 1.2, PROT P, download",
        run: |cell| cell.tls(Down, true, "1.2"),
    },
    Row {
        name: "TLS 1.2, PROT P, upload",
        run: |cell| cell.tls(Up, true, "1.2"),
    },
    Row {
        name: "TLS 1.2, PROT C, download",
        run: |cell| cell.tls(Down, false, "1.2"),
    },
    Row {
        name: "TLS 1.2, PROT C, upload",
        run: |cell| cell.tls(Up, false, "1.2"),
    },
    Row {
        name: "GSI, DCAU A, PROT P, download",
        run: |cell| cell.gsi(Down, GSI, None),
    },
    Row {
        name: "GSI, DCAU A, PROT P, upload",
        run: |cell| cell.gsi(Up, GSI, None),
    },
    Row {
        name: "GSI, DCAU A, PROT P, MODE E, 4 streams, download",
        run: |cell| cell.gsi(Down, GSI, Some(4)),
    },
    Row {
        name: "GSI, DCAU A, PROT P, MODE E, 4 streams, upload",
        run: |cell| cell.gsi(Up, GSI, Some(4)),
    },
    Row {
        name: "GSI, DCAU A, PROT S, download",
        run: |cell| cell.gsi(Down, of(Level::Safe), None),
    },
    Row {
        name: "GSI, DCAU A, PROT S, upload",
        run: |cell| cell.gsi(Up, of(Level::Safe), None),
    },
    Row {
        name: "GSI, DCAU A, PROT C, download",
        run: |cell| cell.gsi(Down, of(Level::Clear), None),
    },
    Row {
        name: "GSI, DCAU A, PROT C, upload",
        run: |cell| cell.gsi(Up, of(Level::Clear), None),
    },
    Row {
        name: "GSI, DCAU N, download",
        run: |cell| cell.gsi(Down, of(Level::Bare), None),
    },
    Row {
        name: "GSI, DCAU N, upload",
        run: |cell| cell.gsi(Up, of(Level::Bare), None),
    },
    Row {
        name: "GSI with TLS 1.2, DCAU A, PROT P, download",
        run: |cell| cell.gsi(Down, older(Level::Private), None),
    },
    Row {
        name: "GSI with TLS 1.2, DCAU A, PROT P, upload",
        run: |cell| cell.gsi(Up, older(Level::Private), None),
    },
    Row {
        name: "GSI with TLS 1.2, DCAU A, PROT C, download",
        run: |cell| cell.gsi(Down, older(Level::Clear), None),
    },
    Row {
        name: "GSI with TLS 1.2, DCAU A, PROT C, upload",
        run: |cell| cell.gsi(Up, older(Level::Clear), None),
    },
    Row {
        name: "GSI, old proxy, DCAU A, PROT P, download",
        run: |cell| cell.gsi(Down, by(OLD_PROXY), None),
    },
    Row {
        name: "GSI, limited proxy, DCAU A, PROT P, download",
        run: |cell| cell.gsi(Down, by(LIMITED_PROXY), None),
    },
    Row {
        name: "GSI, third party, DCAU A, PROT P, from globus-gridftp-server",
        run: |cell| cell.protected_third_party(false, Level::Private),
    },
    Row {
        name: "GSI, third party, DCAU A, PROT P, to globus-gridftp-server",
        run: |cell| cell.protected_third_party(true, Level::Private),
    },
    Row {
        name: "GSI, third party, DCAU A, PROT S, from globus-gridftp-server",
        run: |cell| cell.protected_third_party(false, Level::Safe),
    },
    Row {
        name: "GSI, third party, DCAU A, PROT S, to globus-gridftp-server",
        run: |cell| cell.protected_third_party(true, Level::Safe),
    },
    Row {
        name: "GSI, third party, DCAU A, PROT C, from globus-gridftp-server",
        run: |cell| cell.protected_third_party(false, Level::Clear),
    },
    Row {
        name: "GSI, third party, DCAU A, PROT C, to globus-gridftp-server",
        run: |cell| cell.protected_third_party(true, Level::Clear),
    },
    Row {
        name: "GSI, third party, DCAU N, from globus-gridftp-server",
        run: |cell| cell.protected_third_party(false, Level::Bare),
    },
    Row {
        name: "GSI, third party, DCAU N, to globus-gridftp-server",
        run: |cell| cell.protected_third_party(true, Level::Bare),
    },
];

/// Proxies beside that of RFC 3820, which is the default: with the flag of grid-proxy-init by which
/// each is made, and what only it says about itself.
pub(super) const PROXIES: [(&str, &str, &str); 3] = [
    ("user.proxy", "-rfc", "Proxy Certificate Information"),
    (OLD_PROXY, "-old", "CN = proxy"),
    (LIMITED_PROXY, "-limited", "1.3.6.1.4.1.3536.1.1.1.9"),
];
const OLD_PROXY: &str = "old.proxy";
const LIMITED_PROXY: &str = "limited.proxy";

const GSI: Gsi = Gsi {
    level: Level::Private,
    is_older: false,
    proxy: PROXIES[0].0,
};

const fn of(level: Level) -> Gsi {
    Gsi { level, ..GSI }
}

const fn older(level: Level) -> Gsi {
    Gsi {
        level,
        is_older: true,
        ..GSI
    }
}

const fn by(proxy: &'static str) -> Gsi {
    Gsi { proxy, ..GSI }
}

impl Level {
    /// The commands of the protocol with which a client asks for it, and which it tells by itself.
    fn commands(self, client: Client) -> &'static [&'static str] {
        match (client, self) {
            (Client::Xdfs, Self::Bare) => &["PROT C", "DCAU N"],
            (Client::Xdfs, Self::Clear) => &["PROT C", "DCAU A"],
            (Client::Xdfs, Self::Private) => &["PROT P", "DCAU A"],
            (Client::Xdfs, Self::Safe) => &["PROT S", "DCAU A"],
            (Client::Globus, Self::Bare) => &["DCAU N"],
            // It is the default, so there is none.
            (Client::Globus, Self::Clear) => &["PBSZ"],
            (Client::Globus, Self::Private) => &["PROT P"],
            (Client::Globus, Self::Safe) => &["PROT S"],
            _ => &[],
        }
    }

    fn data(self) -> Data {
        match self {
            Self::Bare => Data::Bare,
            Self::Clear => Data::Proved,
            Self::Private | Self::Safe => Data::Sealed,
        }
    }
}

/// What has to go over the wire.
struct Wanted {
    version: Version,
    data: Data,
    /// The level of GSI.
    level: Option<Level>,
}

impl Cell<'_> {
    fn tls(&mut self, direction: Direction, data: bool, version: Version) -> Outcome {
        let how = How {
            tls: Some(Tls { data, version }),
            ..HOW
        };
        let wanted = Wanted {
            version,
            data: match data {
                true => Data::Sealed,
                false => Data::Bare,
            },
            level: None,
        };
        // Not every client can be told, but this server can.
        let mut older = None;
        if version == "1.2" && self.server.kind == Kind::Vsftpd {
            let special = Special {
                is_older: true,
                ..Special::default()
            };
            let folder = self.here.join("server");
            older = match Server::start_as(Kind::Vsftpd, self.tools, &folder, special) {
                Ok(server) => Some(server),
                Err(error) => return Outcome::Fail(error),
            };
        }
        let server = older.as_mut().unwrap_or(self.server);
        let cell = Cell {
            tools: self.tools,
            client: self.client,
            help: self.help,
            server,
            other: self.other,
            here: self.here.clone(),
        };
        let outcome = cell.seen_file(direction, &how, &["AUTH TLS"], &wanted);
        let Outcome::Fail(_) = &outcome else {
            return outcome;
        };
        let said = fs::read_to_string(cell.log()).unwrap_or_default();
        let said = said.to_lowercase();
        let is_refused = ["protocol version", "protocol_version", "fatal alert"];
        match version == "1.2" && is_refused.iter().any(|words| said.contains(words)) {
            true => Outcome::NotOffered(format!(
                "{} refuses TLS 1.2 with the alert protocol_version",
                cell.server.kind.name()
            )),
            false => outcome,
        }
    }

    fn gsi(&self, direction: Direction, gsi: Gsi, streams: Option<u8>) -> Outcome {
        let how = How {
            gsi: Some(gsi),
            streams,
            ..HOW
        };
        self.seen_file(direction, &how, &["AUTH GSSAPI"], &Wanted::of(gsi))
    }

    /// A file there or back, beneath strace.
    fn seen_file(
        &self,
        direction: Direction,
        how: &How,
        needs: &[&str],
        wanted: &Wanted,
    ) -> Outcome {
        let (name, local, disk) = self.place(direction, BYTES);
        let command = self
            .client
            .file(self.tools, self.server, how, direction, &name, &local);
        let trace = self.here.join("trace");
        let command = command.map(|command| watched(&command, &trace));
        let port = self.server.address.port();
        let mut other = None;
        let outcome = self.judge(needs, command, || {
            same(&local, &disk)?;
            let seen = seen(&trace, &fs::read(&local).unwrap_or_default())?;
            other = seen.control(port).filter(|found| *found != wanted.version);
            self.told(wanted)?;
            seen.check(&[port], wanted.version, wanted.data)
        });
        match other {
            Some(found) => Outcome::NotOffered(format!(
                "{} and {} agree on TLS {found}, and neither has an option for another version",
                self.client.name(),
                self.server.kind.name()
            )),
            None => outcome,
        }
    }

    /// A file from a server to another, of which the one of Globus is beneath strace.
    fn protected_third_party(&self, to_other: bool, level: Level) -> Outcome {
        let (gsi, trace) = (of(level), self.here.join("trace"));
        let special = Special {
            trace: Some(trace.clone()),
            ..Special::default()
        };
        let folder = self.here.join("server");
        let other = match Server::start_as(Kind::Globus, self.tools, &folder, special) {
            Ok(other) => other,
            Err(error) => return Outcome::Fail(error),
        };
        let name = self.name("file");
        let (one, two) = match to_other {
            true => (&*self.server, &other),
            false => (&other, &*self.server),
        };
        make(&one.disk(&name), BYTES);
        if let Some(folder) = two.disk(&name).parent() {
            let _ = fs::create_dir_all(folder);
        }
        let how = How {
            gsi: Some(gsi),
            ..HOW
        };
        let (from, to) = ((one, name.as_str()), (two, name.as_str()));
        let local = self.here.join(&name);
        let command = self.client.third_party(self.tools, &how, from, to, &local);
        let wanted = Wanted::of(gsi);
        self.judge(&["AUTH GSSAPI"], command, || {
            same(&one.disk(&name), &two.disk(&name))?;
            self.told(&wanted)?;
            let seen = seen(&trace, &fs::read(one.disk(&name)).unwrap_or_default())?;
            seen.check(&[other.address.port()], wanted.version, wanted.data)
        })
    }

    /// Fails unless a client with GSI has told the server what is wanted.
    fn told(&self, wanted: &Wanted) -> Result<(), String> {
        let said = fs::read_to_string(self.log()).unwrap_or_default();
        let commands = wanted.level.map(|level| level.commands(self.client));
        let mut commands = commands.unwrap_or_default().iter();
        match commands.find(|command| !said.contains(**command)) {
            Some(command) => Err(format!("it has not told {command}")),
            None => Ok(()),
        }
    }
}

impl Wanted {
    fn of(gsi: Gsi) -> Self {
        Self {
            version: if gsi.is_older { "1.2" } else { "1.3" },
            data: gsi.level.data(),
            level: Some(gsi.level),
        }
    }
}
