//! The flags of commands that stripe files.

use clap::Args;
use xdfs::{NodeAddresses, Stripes};

use super::CONNECTION;
use xdfs::settings::size;

/// Fewest bytes of a block of a stripe.
const BLOCK_BYTES_MIN: u64 = 16 << 10;

/// How files are striped.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = CONNECTION)]
pub(crate) struct StripeFlags {
    /// Move each file by all data nodes of a GridFTP server at once, or by all servers of a group.
    ///
    /// The data nodes send and take stripes of the file over connections of their own (SPAS, SPOR;
    /// -n is the number of connections with each), in MODE E. Between two servers those of both
    /// take part. A server that has no stripes is an error, and one without data nodes is its only
    /// node. Files go to addresses that the server tells, and come from them: only its own address
    /// is believed, and those of --stripe-nodes.
    ///
    /// With xdfs:// the members of the server's group (xdfs serve --group) send each file together,
    /// and write it together; of a tree or a list those of 4 MiB and more. -n is the number of
    /// channels to each member. A server that is in no group is an error.
    #[arg(long)]
    pub(crate) stripe: bool,

    /// Bytes of the blocks that the stripes have in turn, from 16K on.
    ///
    /// Default: what a sending server chooses, and 1M to a server, where a node that is slower than
    /// the others gets less.
    #[arg(long, value_name = "SIZE", requires = "stripe", value_parser = parse_block)]
    pub(crate) stripe_block_size: Option<u64>,

    /// Data nodes with other addresses than their server; may be repeated.
    ///
    /// An address such as 192.0.2.11, or a network such as 192.0.2.0/24; several are separated by
    /// commas. Without it a server could have this machine, or another server, connect to a third
    /// one, and anybody could send what a server was asked for.
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "stripe",
        value_delimiter = ','
    )]
    pub(crate) stripe_nodes: Vec<NodeAddresses>,
}

fn parse_block(text: &str) -> Result<u64, String> {
    match size::parse_size(text)? {
        bytes if bytes < BLOCK_BYTES_MIN => Err("a block of a stripe has at least 16K".into()),
        // The largest number in the protocol.
        bytes if i64::try_from(bytes).is_err() => Err("no file has so many bytes".into()),
        bytes => Ok(bytes),
    }
}

impl StripeFlags {
    /// The same for the library; `None` if files aren't to be striped. `is_part`: they don't begin
    /// with their first byte.
    pub(crate) fn stripes(&self, is_part: bool) -> Option<Stripes> {
        self.stripe.then(|| Stripes {
            block_bytes: self.stripe_block_size,
            nodes: self.stripe_nodes.clone(),
            is_part,
        })
    }
}
