//! What stores must do, seen from outside: one list of cases for every store by capability, and
//! what only local files can get wrong.

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod builtin;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod calls;
#[cfg(test)]
mod common;
#[cfg(test)]
mod holes;
#[cfg(test)]
mod journal;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod open;
#[cfg(target_os = "linux")]
mod order;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod packs;
#[cfg(unix)]
#[cfg(test)]
mod packs_by_files;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod sink;
#[cfg(test)]
mod source;
#[cfg(test)]
mod stream;
