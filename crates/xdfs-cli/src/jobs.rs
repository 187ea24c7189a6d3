//! `xdfs service`, and the commands that ask it: `submit`, `jobs` and `job`.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use xdfs::security::trusted::{self, Secrecy};
use xdfs::settings::{ClientConfig, UserFolder, user_name};
use xdfs::{Code, Fault, Job};
use xdfs_service::{
    DatabaseUrl, JobDetail, JobLimits, JobSettings, JobSummary, Schedule, ScheduleSubmission,
    Service, ServiceClient, ServiceLogin, ServiceOptions, ServiceUsers, Sessions, StateName,
    Submission, Time, TlsListener, WebhookOptions, WebhookSecret, is_of_this_machine,
};

use crate::console::{Console, printable, warn};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{
    BackupFlags, DataFlag, DatabaseFlags, JobCommand, JobFlags, JobsFlags, ManifestFlags,
    OutputFlags, ScheduleCommand, SchedulesFlags, ServiceCommand, ServiceFlags, SetFlags,
    SubmitFlags, WayFlags,
};
use crate::human;
use crate::interrupt::handle_signals;
use crate::log::start_log;
use crate::report::print;
use crate::server_config::service_settings;
use crate::service::{Notice, notify};
use crate::state;
use crate::submitted_list::{Lines, job_between, place};

/// The environment variable with the URL of the database.
const DATABASE_VARIABLE: &str = "XDFS_SERVICE_DATABASE";
/// The operation of faults about a file with a token, and most bytes of it.
const READ_TOKEN: &str = "read the token";
const TOKEN_BYTES_MAX: u64 = 4096;
/// Least pause between two looks at a job that is waited for.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// Jobs that are asked for at once.
const JOBS_MAX: u32 = 1000;
/// Pauses between two requests to a service that doesn't answer.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time for which a service that doesn't answer is asked again.
const ABSENT_MAX: Duration = Duration::from_secs(60);

pub(crate) fn exit_code(result: Result<u8, Fault>) -> u8 {
    result.unwrap_or_else(|fault| {
        Console::new(OutputFlags::default()).error(&fault);
        fault.exit_code()
    })
}

/// Runs `xdfs service` and returns the exit code.
pub(crate) fn service(flags: &ServiceFlags) -> u8 {
    start_log(flags.log_level());
    let done = match &flags.command {
        None => serve(flags),
        Some(ServiceCommand::Backup(flags)) => back_up(flags),
    };
    exit_code(done.map(|()| SUCCESS))
}

/// The database that flags or the environment name; `None` for that in the folder.
fn database(flags: &DatabaseFlags) -> Result<Option<DatabaseUrl>, Fault> {
    if let Some(text) = &flags.database {
        let url: DatabaseUrl = text.parse()?;
        if url.has_password() {
            let cause = "others on this machine can see a password on a command line";
            let fault = Fault::new(Code::InvalidArgument, "use --database", cause);
            return Err(fault.path(url.to_string()).hint(format!(
                "write the URL to a file for --database-file, or to {DATABASE_VARIABLE}"
            )));
        }
        return Ok(Some(url));
    }
    if let Some(path) = &flags.database_file {
        return DatabaseUrl::read(path).map(Some);
    }
    match std::env::var(DATABASE_VARIABLE) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map(Some)
            .map_err(|fault: Fault| fault.path(DATABASE_VARIABLE)),
        _ => Ok(None),
    }
}

fn back_up(flags: &BackupFlags) -> Result<(), Fault> {
    if let Some(url) = database(&flags.database)? {
        let cause = "it is one of PostgreSQL, which has its own tools for that";
        let fault = Fault::new(Code::Unsupported, "back up the database", cause);
        return Err(fault.path(url.to_string()).hint("use pg_dump"));
    }
    xdfs_service::backup(&folder(&flags.data)?, &flags.file)
}

/// The folder of a service.
///
/// # Errors
/// There is no state folder, and none is named.
pub(crate) fn folder(flag: &DataFlag) -> Result<PathBuf, Fault> {
    let folder = flag.data.clone().or_else(state::service);
    folder.ok_or_else(|| {
        let cause = "neither XDFS_STATE_DIR nor HOME is set";
        let fault = Fault::new(Code::NotFound, "find the folder of the service", cause);
        fault.hint("name one with --data")
    })
}

/// The secret of webhooks, if it isn't the one in the folder of the service.
fn webhook_secret(flags: &ServiceFlags) -> Result<Option<WebhookSecret>, Fault> {
    const VARIABLE: &str = "XDFS_WEBHOOK_SECRET";
    match (&flags.webhook_secret, std::env::var(VARIABLE)) {
        (Some(path), _) => WebhookSecret::read(path).map(Some),
        (None, Ok(text)) => {
            let secret = WebhookSecret::parse(&text);
            secret.map(Some).map_err(|fault| fault.path(VARIABLE))
        }
        (None, Err(_)) => Ok(None),
    }
}

fn limit(flag: Option<u32>) -> usize {
    flag.map_or(usize::MAX, |limit| limit as usize)
}

fn serve(flags: &ServiceFlags) -> Result<(), Fault> {
    let (users, tls) = users(flags)?;
    let options = ServiceOptions {
        listen: flags.listen,
        tls,
        data: folder(&flags.data)?,
        database: database(&flags.database)?,
        journals: flags.journals.clone(),
        lease: Duration::from_secs(flags.lease.into()),
        public_url: flags.public_url.clone(),
        workers: flags.workers as usize,
        limits: JobLimits {
            all: limit(flags.limit_all),
            user: limit(flags.limit_user),
            link: flags.limit_link as usize,
        },
        keep: flags.keep.0,
        webhooks: WebhookOptions {
            allow: flags.webhook_allow.clone(),
            secret: webhook_secret(flags)?,
        },
        users,
        secrets_key: flags.secrets_key.clone(),
        sessions: Sessions::of_user(),
    };
    let service = Service::bind(options)?;
    let handle = service.handle();
    let mut is_asked = false;
    handle_signals(move || {
        notify(Notice::Stopping);
        handle.shutdown();
        if is_asked {
            std::process::exit(i32::from(Code::Cancelled.exit_code()));
        }
        is_asked = true;
        let text = "stopping jobs in an orderly way; another signal ends them at once";
        Console::new(OutputFlags::default()).info(text);
    })?;
    let url = service.url();
    // The log of a machine, where this text may go, is read by others than the owner.
    let link = match service.has_users() {
        true => service.public_url(),
        false => service.login_link()?,
    };
    let for_others = service.tls_url().map(|url| format!("listening on {url}\n"));
    let for_others = for_others.unwrap_or_default();
    print(format!("listening on {url}\n{for_others}open {link}\n"))?;
    // Connections wait until it answers.
    notify(Notice::Ready);
    service.run()
}

/// The users whom the configuration of a server names, and where they come in by TLS.
fn users(flags: &ServiceFlags) -> Result<(Option<ServiceUsers>, Option<TlsListener>), Fault> {
    let Some(config) = &flags.config else {
        return Ok((None, None));
    };
    let settings = service_settings(config)?;
    let (security, administrators) = (settings.security, settings.administrators);
    match flags.listen_tls.or(settings.listen_tls) {
        None => Ok((Some(ServiceUsers::new(security, administrators)?), None)),
        Some(listen) => {
            let (users, tls) = ServiceUsers::with_certificates(security, administrators)?;
            Ok((Some(users), Some(TlsListener { listen, tls })))
        }
    }
}

/// The login that flags name.
fn login(flags: &WayFlags) -> Result<ServiceLogin, Fault> {
    if let Some(file) = &flags.service_token {
        let text = trusted::read(READ_TOKEN, file, TOKEN_BYTES_MAX, Secrecy::Secret)?;
        let line = String::from_utf8_lossy(&text);
        let token = line.lines().next().unwrap_or_default().trim().to_owned();
        return Ok(ServiceLogin::Token(token));
    }
    if let (Some(chain), Some(key)) = (&flags.service_cert, &flags.service_cert_key) {
        return Ok(ServiceLogin::Certificate(chain.clone(), key.clone()));
    }
    let is_named = flags.service_user.is_some() || flags.service_key.is_some();
    // The token of the folder is the owner's, and nothing for services of other machines.
    let is_own = match (&flags.service, &flags.data.data) {
        (None, _) | (_, Some(_)) => true,
        (Some(url), None) => {
            is_of_this_machine(url) && folder(&flags.data).is_ok_and(|folder| folder.exists())
        }
    };
    if is_own && !is_named {
        return Ok(ServiceLogin::Owner);
    }
    let user = flags.service_user.clone().unwrap_or_else(user_name);
    let key = match &flags.service_key {
        Some(key) => key.clone(),
        None => UserFolder::find()?.key(),
    };
    Ok(ServiceLogin::Key(user, key))
}

pub(crate) fn client(flags: &WayFlags) -> Result<ServiceClient, Fault> {
    client_of(flags, &login(flags)?)
}

/// A client of the service with this login.
pub(crate) fn client_of(flags: &WayFlags, login: &ServiceLogin) -> Result<ServiceClient, Fault> {
    let url = flags.service.as_deref();
    let folder = match (folder(&flags.data), url, login) {
        (folder, None, _) | (folder, _, ServiceLogin::Owner) => folder?,
        // Neither the URL nor the login is there.
        (folder, ..) => folder.unwrap_or_default(),
    };
    ServiceClient::log_in(&folder, url, login)
}

/// Runs `xdfs submit` and returns the exit code.
pub(crate) fn submit(context: &Context, flags: &SubmitFlags) -> u8 {
    exit_code(
        context
            .config()
            .and_then(|config| submit_job(config, flags)),
    )
}

/// The only copy of a command without a list.
fn only_job(config: &ClientConfig, flags: &SubmitFlags) -> Result<Job, Fault> {
    let (Some(source), Some(target)) = (&flags.source, &flags.target) else {
        let cause = "a source and a target are needed, or --from-file";
        return Err(Fault::new(Code::InvalidArgument, "submit a copy", cause));
    };
    job_between(flags, place(config, source)?, place(config, target)?)
}

fn submit_job(config: &ClientConfig, flags: &SubmitFlags) -> Result<u8, Fault> {
    let mut submission = Submission::new(&flags.label, Vec::new());
    if let Some(retries) = flags.retries {
        submission.retries_max = retries;
    }
    submission.priority = flags.priority;
    submission.deadline = flags.deadline;
    submission.keep_until = flags.keep;
    submission.manifest = flags.manifest;
    submission.webhook.clone_from(&flags.webhook);
    submission.secrets.clone_from(&flags.secret);
    let client = client(&flags.reach.way)?;
    let key = ServiceClient::new_key()?;
    if let Some(every) = &flags.every {
        submission.transfers.push(only_job(config, flags)?);
        let schedule = ScheduleSubmission {
            every: every.clone(),
            starts_at: flags.at,
            job: submission,
        };
        let made = patiently(|| client.schedule(&schedule, &key))?;
        match flags.reach.json {
            true => print_json(&made)?,
            false => print(format!("{}\n", made.id))?,
        }
        return Ok(SUCCESS);
    }
    submission.starts_at = flags.at;
    let submitted = match &flags.from_file {
        None => {
            submission.transfers.push(only_job(config, flags)?);
            patiently(|| client.submit(&submission, &key))?
        }
        Some(list) => submit_list(config, flags, &client, &submission, list)?,
    };
    let id = submitted.job.id;
    match (flags.reach.json, flags.wait) {
        (true, false) => print_json(&submitted)?,
        (true, true) => {}
        (false, _) => print(format!("{id}\n"))?,
    }
    match flags.wait {
        true => wait(&client, id, flags.reach.json),
        false => Ok(SUCCESS),
    }
}

/// Submits a list as one job.
fn submit_list(
    config: &ClientConfig,
    flags: &SubmitFlags,
    client: &ServiceClient,
    submission: &Submission,
    list: &Path,
) -> Result<JobDetail, Fault> {
    let head = serde_json::to_string(submission)
        .map_err(|error| Fault::new(Code::Internal, "write the job", error.to_string()))?;
    let mut lines = Lines::new(config, flags, list, &head)?;
    // A service that is being started is waited for before the list is read.
    patiently(|| client.jobs(None, None, 1))?;
    let submitted = client.submit_lines(&mut lines, &ServiceClient::new_key()?);
    match (submitted, lines.fault()) {
        (_, Some(fault)) => Err(fault.hint("nothing was submitted")),
        (submitted, None) => submitted,
    }
}

/// Asks again while the service doesn't answer, as while it is started again.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut pause = PAUSE_FIRST;
    let mut absent = Duration::ZERO;
    loop {
        match ask() {
            Err(fault) if fault.code == Code::ConnectionRefused && absent < ABSENT_MAX => {
                thread::sleep(pause);
                absent += pause;
                pause = PAUSE_MAX.min(pause * 2);
            }
            answer => return answer,
        }
    }
}

/// Waits until a job has ended. Returns its exit code.
fn wait(client: &ServiceClient, id: xdfs_service::JobId, json: bool) -> Result<u8, Fault> {
    let mut console = Console::new(OutputFlags::default());
    let began = Instant::now();
    let mut not_before = None;
    let detail = loop {
        let detail = patiently(|| client.job(id))?;
        if detail.job.state.is_end() {
            break detail;
        }
        if let (Some(at), Some(failure)) = (detail.job.not_before, &detail.job.failure)
            && not_before != Some(at)
        {
            not_before = Some(at);
            warn(&failure.clone().into());
            console.info(&format!("the job tries again at {at}"));
        }
        // The end is seen late by a small part of the whole time.
        thread::sleep((began.elapsed() / 32).clamp(LOOK_MIN, PAUSE_MAX));
    };
    if json {
        print_json(&detail)?;
    }
    match (detail.job.failure, detail.job.state) {
        (Some(failure), _) => {
            let exit_code = failure.exit_code;
            Console::new(OutputFlags::default()).error(&failure.into());
            Ok(exit_code)
        }
        (None, StateName::Cancelled) => {
            let fault = Fault::new(Code::Cancelled, "run the job", "it was cancelled");
            Err(fault.path(id.to_string()))
        }
        (None, _) => Ok(SUCCESS),
    }
}

pub(crate) fn print_json(job: &impl serde::Serialize) -> Result<(), Fault> {
    let text = serde_json::to_string(job)
        .map_err(|error| Fault::new(Code::Internal, "print the job", error.to_string()))?;
    print(text + "\n")
}

/// Runs `xdfs jobs` and returns the exit code.
pub(crate) fn jobs(flags: &JobsFlags) -> u8 {
    exit_code(list(flags).map(|()| SUCCESS))
}

fn list(flags: &JobsFlags) -> Result<(), Fault> {
    let client = client(&flags.reach.way)?;
    let mut after = None;
    loop {
        let page = client.jobs(flags.state, after, JOBS_MAX)?;
        for job in &page.jobs {
            match flags.reach.json {
                true => print_json(job)?,
                false => print(line(job))?,
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// A job in one line.
fn line(job: &JobSummary) -> String {
    let (source, target) = (printable(&job.source), printable(&job.target));
    let size = human::size(job.counts.bytes);
    let state = job.state.as_str();
    let mut line = format!("{}  {state:<10}  {size:>8}  {source} -> {target}", job.id);
    if job.transfers_count > 1 {
        line.push_str(&format!(" and {} more", job.transfers_count - 1));
    }
    if !job.label.is_empty() {
        line.push_str(&format!("  ({})", printable(&job.label)));
    }
    line + "\n"
}

/// Runs `xdfs schedules` and returns the exit code.
pub(crate) fn schedules(flags: &SchedulesFlags) -> u8 {
    exit_code(list_schedules(flags).map(|()| SUCCESS))
}

fn list_schedules(flags: &SchedulesFlags) -> Result<(), Fault> {
    let client = client(&flags.reach.way)?;
    let mut after = None;
    loop {
        let page = client.schedules(after)?;
        for schedule in &page.schedules {
            match flags.reach.json {
                true => print_json(schedule)?,
                false => print(schedule_lines(schedule))?,
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// A schedule in a line, and what went wrong in others.
fn schedule_lines(schedule: &Schedule) -> String {
    let (source, target) = (printable(&schedule.source), printable(&schedule.target));
    let every = printable(&schedule.every);
    let mut text = format!(
        "{}  every {every}, next at {}  {source} -> {target}",
        schedule.id, schedule.next_at
    );
    if !schedule.label.is_empty() {
        text.push_str(&format!("  ({})", printable(&schedule.label)));
    }
    text.push('\n');
    if let Some(at) = schedule.skipped_at {
        let count = schedule.skipped;
        text.push_str(&format!(
            "  {count} skipped since the job before had not ended, last at {at}\n"
        ));
    }
    if let Some(failure) = &schedule.failure {
        text.push_str(&format!("  {}\n", printable(&failure.sentence())));
    }
    text
}

/// Runs `xdfs schedule` and returns the exit code.
pub(crate) fn schedule(command: &ScheduleCommand) -> u8 {
    let ScheduleCommand::Delete(flags) = command;
    let client = client(&flags.reach.way);
    exit_code(client.and_then(|client| client.delete_schedule(flags.id).map(|()| SUCCESS)))
}

/// Runs `xdfs job` and returns the exit code.
pub(crate) fn job(command: &JobCommand) -> u8 {
    exit_code(match command {
        JobCommand::Show(flags) => show(flags),
        JobCommand::Wait(flags) => {
            client(&flags.reach.way).and_then(|client| wait(&client, flags.id, flags.reach.json))
        }
        JobCommand::Cancel(flags) => change(flags, "cancel"),
        JobCommand::Pause(flags) => change(flags, "pause"),
        JobCommand::Resume(flags) => change(flags, "resume"),
        JobCommand::Retry(flags) => change(flags, "retry"),
        JobCommand::Set(flags) => set(flags),
        JobCommand::Manifest(flags) => manifest(flags),
        JobCommand::Delete(flags) => client(&flags.reach.way)
            .and_then(|client| client.delete(flags.id))
            .map(|()| SUCCESS),
    })
}

fn manifest(flags: &ManifestFlags) -> Result<u8, Fault> {
    let client = client(&flags.way)?;
    client.manifest(flags.id, |part| print(part))?;
    Ok(SUCCESS)
}

fn set(flags: &SetFlags) -> Result<u8, Fault> {
    let settings = JobSettings {
        priority: flags.priority,
        label: flags.label.clone(),
        deadline: flags.deadline.map(|deadline| deadline.0),
        keep_until: flags.keep.map(|keep| keep.0),
    };
    let client = client(&flags.job.reach.way)?;
    changed(&flags.job, &client.set(flags.job.id, &settings)?)
}

fn change(flags: &JobFlags, change: &str) -> Result<u8, Fault> {
    let detail = client(&flags.reach.way)?.change(flags.id, change)?;
    changed(flags, &detail)
}

/// Prints a job that was changed.
fn changed(flags: &JobFlags, detail: &JobDetail) -> Result<u8, Fault> {
    match flags.reach.json {
        true => print_json(detail)?,
        false => print(line(&detail.job))?,
    }
    Ok(SUCCESS)
}

fn show(flags: &JobFlags) -> Result<u8, Fault> {
    let detail = client(&flags.reach.way)?.job(flags.id)?;
    match flags.reach.json {
        true => print_json(&detail)?,
        false => print(description(&detail))?,
    }
    Ok(SUCCESS)
}

/// A job for people.
fn description(detail: &JobDetail) -> String {
    let job = &detail.job;
    let mut text = line(job);
    if job.priority != 0 {
        text.push_str(&format!("  priority {}\n", job.priority));
    }
    let times = [
        (
            "starts at",
            job.starts_at.filter(|_| job.started_at.is_none()),
        ),
        (
            "to be done by",
            job.deadline.filter(|_| !job.state.is_end()),
        ),
        ("kept until", job.keep_until),
    ];
    for (words, time) in times {
        if let Some(time) = time {
            text.push_str(&format!("  {words} {time}\n"));
        }
    }
    if let Some(at) = job.not_before {
        text.push_str(&format!("  tries again at {at}, after:\n"));
    }
    if let Some(failure) = &job.failure {
        text.push_str(&format!("  {}\n", printable(&failure.sentence())));
        if let Some(hint) = &failure.hint {
            text.push_str(&format!("  hint: {}\n", printable(hint)));
        }
    }
    if let Some(reason) = &detail.waits_for {
        text.push_str(&format!("  waits: {}\n", printable(reason)));
    }
    for transfer in &detail.transfers {
        let state = transfer.state.as_str();
        let (source, target) = (printable(&transfer.source), printable(&transfer.target));
        let size = human::size(transfer.counts.bytes);
        text.push_str(&format!("  {state:<9}  {size:>8}  {source} -> {target}\n"));
    }
    for one in &detail.failures {
        text.push_str(&format!("  {}\n", printable(&one.failure.sentence())));
    }
    if let Some(webhook) = &detail.webhook {
        let (state, url) = (webhook.state.as_str(), printable(&webhook.url));
        text.push_str(&format!("  webhook {state}: {url}\n"));
        if let Some(failure) = &webhook.failure {
            text.push_str(&format!("  {}\n", printable(&failure.sentence())));
        }
    }
    for one in &detail.transitions {
        let at: Time = one.at;
        let (actor, reason) = (printable(&one.actor), printable(&one.reason));
        text.push_str(&format!("  {at}  {}, by {actor}: {reason}\n", one.to));
    }
    text
}
