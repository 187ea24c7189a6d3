//! Addresses and `xdfs://` places, from any text: what a user pastes, or a script makes up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs::{Address, Invitation, RemotePlace};

fuzz_target!(|text: &str| {
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse::<Address>(), Ok(address));
    }
    for prefix in ["", "xdfs://", "xdfs+unix://", "ssh://"] {
        if let Ok(mut place) = format!("{prefix}{text}").parse::<RemotePlace>() {
            // What is shown to the user names the same place, without what let somebody in.
            let shown = place.to_string();
            place.invitation = Invitation::default();
            assert_eq!(shown.parse::<RemotePlace>(), Ok(place));
        }
    }
});
