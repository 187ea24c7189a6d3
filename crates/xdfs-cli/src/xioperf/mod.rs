//! `xdfs xioperf`: measures driver stacks in turns.

mod plot;
mod table;

use std::fs;
use std::thread;

use xdfs::drivers::Registry;
use xdfs::record::Record;
use xdfs::{Code, Fault, PerfCase, PerfIdentity, PerfPattern, PerfSample, PerfStack};

use crate::console::Console;
use crate::exit_codes::SUCCESS;
use crate::flags::{PatternFlag, XioperfFlags};
use crate::log::start_log;
use crate::report::print;

/// A stack under test.
struct Tested {
    name: String,
    stack: PerfStack,
    contact: String,
}

/// All turns of one stack with one case.
#[derive(Debug)]
struct Row {
    name: String,
    case: PerfCase,
    samples: Vec<PerfSample>,
    /// The ratios to plain sockets in the same turns: of bandwidth, or of the round trip.
    ratios: Vec<f64>,
}

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: &XioperfFlags) -> u8 {
    start_log(flags.output.log_level());
    let done = match &flags.listen {
        Some(contact) => listen(flags, contact),
        None => measure(flags),
    };
    let Err(fault) = done else {
        return SUCCESS;
    };
    if flags.output.json {
        // If standard output is the failure, the console tells of it.
        let _ = print(Record::error(None, &fault).line());
    }
    Console::new(flags.output).error(&fault);
    fault.code.exit_code()
}

/// The stacks that the flags name, each with the name that it is told by.
fn stacks(
    flags: &XioperfFlags,
    identity: &PerfIdentity,
) -> Result<Vec<(String, PerfStack)>, Fault> {
    let mut stacks = Vec::new();
    if flags.raw {
        stacks.push(("raw".to_owned(), PerfStack::RawTcp));
    }
    let mut specs = flags.stack.clone();
    if specs.is_empty() && !flags.raw {
        let tcp = "tcp".parse();
        specs.extend(tcp.ok());
    }
    for spec in specs {
        let stack = PerfStack::new(&spec, &Registry::standard(), identity)?;
        stacks.push((spec.to_string(), stack));
    }
    Ok(stacks)
}

fn listen(flags: &XioperfFlags, contact: &str) -> Result<(), Fault> {
    let (identity, fingerprint) = PerfIdentity::temporary()?;
    let mut stacks = stacks(flags, &identity)?;
    let (Some((name, stack)), true) = (stacks.pop(), stacks.is_empty()) else {
        let cause = "several stacks can't listen at one place";
        let fault = Fault::new(Code::InvalidArgument, "listen", cause);
        return Err(fault.hint("start one for each, at other ports"));
    };
    let listener = stack.listen(contact)?;
    let contact = listener.contact()?;
    print(format!(
        "listening on {contact} with {name}\nfingerprint {fingerprint}\n"
    ))?;
    listener.serve()
}

fn measure(flags: &XioperfFlags) -> Result<(), Fault> {
    let identity = match (&flags.contact, flags.pin) {
        (None, _) => PerfIdentity::temporary()?.0,
        (Some(_), Some(pin)) => PerfIdentity::trusting(pin)?,
        (Some(_), None) => PerfIdentity::none(),
    };
    let stacks = stacks(flags, &identity)?;
    if flags.contact.is_some() && stacks.len() > 1 {
        let cause = "the other end listens with one stack";
        return Err(Fault::new(Code::InvalidArgument, "measure stacks", cause));
    }
    let mut tested = Vec::new();
    for (name, stack) in stacks {
        let contact = match &flags.contact {
            Some(contact) => contact.clone(),
            None => {
                let listener = stack.listen(&stack.own_contact())?;
                let contact = listener.contact()?;
                // It ends with the process.
                let serving = thread::Builder::new().name("xioperf-listen".into());
                serving
                    .spawn(move || listener.serve())
                    .map_err(|e| Fault::from_io("start a thread", "", &e))?;
                contact
            }
        };
        tested.push(Tested {
            name,
            stack,
            contact,
        });
    }
    let rows = take_turns(flags, &tested)?;
    if flags.output.json {
        for row in &rows {
            let record = Record::stack(&row.name, &row.case, &row.samples, &row.ratios);
            print(record.line())?;
        }
    } else {
        print(table::table(&rows))?;
    }
    if let Some(path) = &flags.plot {
        let picture = plot::svg(&rows)?;
        let name = path.as_os_str().as_encoded_bytes();
        fs::write(path, picture).map_err(|e| Fault::from_io("write the picture", name, &e))?;
    }
    Ok(())
}

fn take_turns(flags: &XioperfFlags, tested: &[Tested]) -> Result<Vec<Row>, Fault> {
    let patterns: &[PerfPattern] = match flags.pattern {
        PatternFlag::Both => &[PerfPattern::PingPong, PerfPattern::OneWay],
        PatternFlag::OneWay => &[PerfPattern::OneWay],
        PatternFlag::PingPong => &[PerfPattern::PingPong],
    };
    let mut rows = Vec::new();
    for &pattern in patterns {
        for &message_bytes in &flags.sizes {
            let case = PerfCase {
                pattern,
                message_bytes,
                duration: flags.time,
            };
            let first = rows.len();
            rows.extend(tested.iter().map(|tested| Row {
                name: tested.name.clone(),
                case,
                samples: Vec::new(),
                ratios: Vec::new(),
            }));
            for _ in 0..flags.repeats {
                let mut raw = None;
                for (row, tested) in rows[first..].iter_mut().zip(tested) {
                    let sample = tested.stack.measure(&tested.contact, &case)?;
                    let value = value(&case, &sample);
                    match (&tested.stack, raw) {
                        (PerfStack::RawTcp, _) => raw = Some(value),
                        (_, Some(raw)) => row.ratios.push(value / raw),
                        (_, None) => {}
                    }
                    row.samples.push(sample);
                }
            }
        }
    }
    Ok(rows)
}

/// What a sample is compared by: bytes per second, or seconds of a round trip.
fn value(case: &PerfCase, sample: &PerfSample) -> f64 {
    match sample.round_trip {
        Some((median, _)) => median.as_secs_f64(),
        None => sample.bytes_per_second(case),
    }
}
