//! `plimsoll bootstrap`: prints what a proxy needs to find the control plane.
//!
//! The content is made in plimsoll-control.

use std::io::Write;

use anyhow::{Context as _, anyhow};
use plimsoll_control::bootstrap::{Bootstrap, EnvoyOptions};

use super::{Exit, unless_closed};

/// Print a bootstrap for an Envoy or a gRPC client
///
/// The proxy's zone is all that must be said. Nobody writes a local cluster by hand: proxies that
/// connect form their fleet by themselves.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// For a stock Envoy (1.35 or newer), as JSON, which Envoy takes with -c FILE.json
    Envoy {
        #[command(flatten)]
        node: NodeArgs,
        /// Discover incrementally (delta xDS)
        #[arg(long)]
        delta: bool,
        /// Port of Envoy's own admin page on 127.0.0.1
        #[arg(long, value_name = "PORT")]
        admin_port: Option<u16>,
        /// Name of the local cluster
        #[arg(long, value_name = "NAME", default_value = "local_cluster")]
        local_cluster: String,
    },
    /// For a gRPC client, to be named by GRPC_XDS_BOOTSTRAP
    Grpc {
        #[command(flatten)]
        node: NodeArgs,
    },
}

#[derive(Debug, clap::Args)]
struct NodeArgs {
    /// Zone of the proxy
    #[arg(long)]
    zone: String,
    /// Region of the proxy
    #[arg(long, default_value = "")]
    region: String,
    /// Part of the zone, for example a rack
    #[arg(long, default_value = "")]
    sub_zone: String,
    /// Fleet of the proxy (node.cluster)
    #[arg(long, default_value = "gateway")]
    fleet: String,
    /// Id of the proxy, unique in its fleet; default FLEET-ZONE
    #[arg(long)]
    id: Option<String>,
    /// Where the control plane is
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:18000")]
    control: String,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll bootstrap envoy --zone zone-a > envoy.json
  plimsoll bootstrap envoy --zone zone-a --region r1 --fleet gateway --id gateway-7 \\
      --control control.internal:18000 --admin-port 9901 > envoy.json
  plimsoll bootstrap grpc --zone zone-b --fleet checkout > bootstrap.json
  GRPC_XDS_BOOTSTRAP=bootstrap.json ./checkout      # and dial xds:///orders";

/// Prints.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let json = match args.kind {
        Kind::Envoy {
            node,
            delta,
            admin_port,
            local_cluster,
        } => node.bootstrap()?.envoy(&EnvoyOptions {
            delta,
            admin_port,
            local_cluster_name: local_cluster,
        }),
        Kind::Grpc { node } => node.bootstrap()?.grpc(),
    };
    unless_closed(writeln!(out, "{json:#}"))?;
    Ok(Exit::Ok)
}

impl NodeArgs {
    fn bootstrap(self) -> anyhow::Result<Bootstrap> {
        let (host, port) = self
            .control
            .rsplit_once(':')
            .ok_or_else(|| anyhow!("--control: {:?} is not HOST:PORT", self.control))?;
        let control_port = port
            .parse()
            .with_context(|| format!("--control: {port:?} is not a port"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Bootstrap {
            id: self
                .id
                .unwrap_or_else(|| format!("{}-{}", self.fleet, self.zone)),
            fleet: self.fleet,
            region: self.region,
            zone: self.zone,
            sub_zone: self.sub_zone,
            control_host: host.to_owned(),
            control_port,
        })
    }
}
