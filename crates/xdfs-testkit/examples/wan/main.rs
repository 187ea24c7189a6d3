//! An emulated wide area network by hand: runs one program on each of its hosts, or keeps it
//! until the input ends, and says what the link has done. Needs Linux and root.
//!
//! ```sh
//! cargo run -p xdfs-testkit --example wan -- --delay 25ms --rate 1Gbit --loss 0.1% \
//!     --right 'iperf3 -s -1' -- sh -c 'sleep 1; iperf3 -c $WAN_ADDRESS'
//! ```

#[cfg(target_os = "linux")]
mod options;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;

    match linux::run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("wan: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("wan: network namespaces and TUN devices are Linux's");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::process::Command;

    use xdfs_testkit::process::Guard;
    use xdfs_testkit::wan::{Direction, Side, Wan};

    use crate::options::Options;

    /// The exit code of the program on the left host.
    pub(super) fn run() -> Result<u8, Box<dyn std::error::Error>> {
        let Some(options) = Options::parse(std::env::args().skip(1))? else {
            println!("{}", Options::HELP);
            return Ok(0);
        };
        let wan = Wan::new(options.plan)?;
        for (name, value) in &options.settings {
            wan.left().set_option(name, value)?;
            wan.right().set_option(name, value)?;
        }
        for side in [wan.left(), wan.right()] {
            eprintln!("wan: {} has {}", side.name(), side.address());
        }
        let start = |side: &Side, program: &str, args: &[String]| {
            let mut command = side.command(program);
            command.args(args);
            environment(&wan, &mut command);
            command
        };
        let right = match &options.right {
            Some(line) => {
                let args = ["-c".to_owned(), line.clone()];
                Some(Guard::spawn(&mut start(wan.right(), "sh", &args))?)
            }
            None => None,
        };
        let code = if let Some((program, args)) = options.left.split_first() {
            let status = start(wan.left(), program, args).status()?;
            status.code().and_then(|code| u8::try_from(code).ok())
        } else {
            eprintln!("wan: waiting for the end of the input");
            io::copy(&mut io::stdin(), &mut io::sink())?;
            Some(0)
        };
        for line in right.iter().flat_map(Guard::output) {
            println!("right: {line}");
        }
        for direction in [Direction::LeftToRight, Direction::RightToLeft] {
            eprintln!("wan: {direction:?}: {:?}", wan.counters(direction)?);
        }
        Ok(code.unwrap_or(1))
    }

    /// What the programs are told.
    fn environment(wan: &Wan, command: &mut Command) {
        command.env("WAN_LEFT", wan.left().name());
        command.env("WAN_RIGHT", wan.right().name());
        command.env("WAN_ADDRESS", wan.right().address().to_string());
    }
}
