//! The warnings in the log of this process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A warning: its fields, of which `message` is one.
pub type Warning = BTreeMap<&'static str, String>;

static SEEN: Mutex<Vec<Warning>> = Mutex::new(Vec::new());

/// Keeps the warnings of this process from now on.
///
/// # Panics
/// Something else takes them.
pub fn keep() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        tracing::subscriber::set_global_default(Keeper).expect("nothing else takes the log");
    });
}

/// The warnings so far.
#[must_use]
pub fn all() -> Vec<Warning> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Keeper;

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(Warning);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
