//! `plimsoll bootstrap`: prints the bootstrap with which a proxy finds the control plane.

use std::io::Write;

use anyhow::{Context as _, anyhow};
use plimsoll_control::bootstrap::{Bootstrap, EnvoyOptions};

use super::{Exit, ignore_broken_pipe};

/// Print a bootstrap for an Envoy or a gRPC client
///
/// The bootstrap names the control plane and the proxy's zone, fleet and id. Only --zone is
/// required. The local cluster needs no configuration: the control plane builds it from the proxies
/// that connect.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Print the bootstrap of an unmodified Envoy (1.35 or newer) as JSON, for envoy -c FILE.json
    Envoy {
        #[command(flatten)]
        node: NodeArgs,
        /// Use the incremental variant of xDS (delta) instead of state of the world
        #[arg(long)]
        delta: bool,
        /// Port of Envoy's admin interface on 127.0.0.1; without it Envoy has none
        #[arg(long, value_name = "PORT")]
        admin_port: Option<u16>,
        /// Name of the local cluster (cluster_manager.local_cluster_name)
        #[arg(long, value_name = "NAME", default_value = "local_cluster")]
        local_cluster: String,
    },
    /// Print the bootstrap of a gRPC client, for the file that GRPC_XDS_BOOTSTRAP names
    Grpc {
        #[command(flatten)]
        node: NodeArgs,
    },
}

#[derive(Debug, clap::Args)]
struct NodeArgs {
    /// Zone of the proxy (node.locality.zone)
    #[arg(long)]
    zone: String,
    /// Region of the proxy (node.locality.region)
    #[arg(long, default_value = "")]
    region: String,
    /// Part of the zone, for example a rack (node.locality.sub_zone)
    #[arg(long, default_value = "")]
    sub_zone: String,
    /// Fleet of the proxy (node.cluster); proxies with the same configuration form a fleet
    #[arg(long, default_value = "gateway")]
    fleet: String,
    /// Id of the proxy (node.id), unique within its fleet [default: FLEET-ZONE]
    #[arg(long)]
    id: Option<String>,
    /// Address of the control plane's xDS server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:18000")]
    control: String,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll bootstrap envoy --zone zone-a > envoy.json
  plimsoll bootstrap envoy --zone zone-a --region r1 --fleet gateway --id gateway-7 \\
      --control control.internal:18000 --admin-port 9901 > envoy.json
  plimsoll bootstrap grpc --zone zone-b --fleet checkout > bootstrap.json
  GRPC_XDS_BOOTSTRAP=bootstrap.json ./checkout      # which dials xds:///orders

Exit codes: 0 success, 2 wrong usage.";

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
    ignore_broken_pipe(writeln!(out, "{json:#}"))?;
    Ok(Exit::Ok)
}

impl NodeArgs {
    fn bootstrap(self) -> anyhow::Result<Bootstrap> {
        let (host, port) = self
            .control
            .rsplit_once(':')
            .ok_or_else(|| anyhow!("--control: {:?} has no port; write HOST:PORT", self.control))?;
        let control_port = port
            .parse()
            .with_context(|| format!("--control: {port:?} is not a port number from 0 to 65535"))?;
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
