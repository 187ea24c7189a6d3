//! Addresses and `xdfs://` places, from any text: what a user pastes, or a script makes up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs::{Address, RemotePlace};

fuzz_target!(|text: &str| {
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>(), Ok(address));
    }
    for prefix in ["", "xdfs://", "xdfs+unix://"] {
        if let Ok(place) = format!("{prefix}{text}").parse::<RemotePlace>() {
            // What is shown to the user names the same place.
            assert_eq!(place.to_string().parse::<RemotePlace>(), Ok(place));
        }
    }
});
