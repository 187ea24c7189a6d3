//! The side that asks of the group `calls`: calls about a path, many under way at once.
//!
//! A process of its own, so that its CPU time and memory are those of the library alone. It stats
//! one path over one channel without protection, and prints one JSON line. Started by
//! a `CommandLine` of `session`.

use std::{collections::VecDeque, process::ExitCode, time::Instant};

use xdfs::{Answer, Call, Client, ClientOptions, PendingCall, RemotePlace};

/// The first word of its command lines.
pub(crate) const COMMAND: &str = "ask";
/// Calls under way at once: more than a session has places for, so that none is ever free.
const UNDER_WAY: usize = 1024;

/// Runs `ask URL COUNT`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        [url, count] => ask(url, count),
        _ => Err("URL and COUNT are needed".to_owned()),
    };
    match result {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{COMMAND} {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn ask(url: &str, count: &str) -> Result<String, String> {
    let failed = |fault: xdfs::Fault| fault.to_string();
    let place: RemotePlace = url.parse().map_err(failed)?;
    let count: u64 = count.parse().map_err(|error| format!("{count}: {error}"))?;
    let options = ClientOptions {
        channels: Some(1),
        ..ClientOptions::default()
    };
    let client = Client::connect(&place, options).map_err(failed)?;
    let stat = || {
        client
            .start_call(Call::Stat {
                path: place.path.clone(),
                follow: true,
            })
            .map_err(failed)
    };
    let end = |pending: PendingCall| match pending.wait().map_err(failed)? {
        Answer::Attributes(_) => Ok(()),
        other => Err(format!("no attributes: {other:?}")),
    };
    // The first one waits until the session is open.
    end(stat()?)?;
    let started = Instant::now();
    let mut under_way = VecDeque::new();
    for _ in 0..count {
        if under_way.len() >= UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            end(first)?;
        }
        under_way.push_back(stat()?);
    }
    under_way.into_iter().try_for_each(end)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(format!(
        "{{\"type\":\"result\",\"calls\":{count},\"seconds\":{seconds},\"channels\":1}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_words_and_absent_servers_are_named() {
        assert!(ask("nowhere", "1").is_err());
        assert!(ask("xdfs://127.0.0.1:1/f", "many").is_err());
        let port = crate::server::free_port().unwrap();
        let error = ask(&format!("xdfs://127.0.0.1:{port}/f"), "1").unwrap_err();
        assert!(!error.is_empty());
    }
}
