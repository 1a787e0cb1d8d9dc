//! `plimsoll bootstrap`: prints the bootstrap with which a proxy finds the control plane.

mod files;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use plimsoll_control::bootstrap::{Bootstrap, BootstrapTls, EnvoyOptions, EnvoySecret};

use super::{Exit, ignore_broken_pipe};
use crate::own_zone::{self, ZonePlaces};

/// Print a bootstrap for an Envoy or a gRPC client
///
/// The bootstrap names the control plane and the proxy's zone, fleet and id. Only the zone is
/// required. The local cluster needs no configuration: the control plane builds it from the proxies
/// that connect.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
    /// Write to this file instead of standard output; it is replaced as a whole, and left as it is
    /// after a mistake
    #[arg(long, short, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
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
        /// Let Plimsoll's module balance: announces it to the control plane, whose clusters then
        /// use it, and gives the local cluster its policy, which observes the fleet (Envoy 1.38 or
        /// newer)
        #[arg(long)]
        module: bool,
        /// Port on 127.0.0.1 where the module explains its decisions; without it, it does not
        #[arg(long, value_name = "PORT", requires = "module")]
        module_admin_port: Option<u16>,
        /// Name in the control plane's certificate [default: the host of --control]
        #[arg(long, value_name = "NAME", requires = "authority")]
        tls_server_name: Option<String>,
        /// Directory with the outputs of `plimsoll bootstrap envoy-secret`: Envoy then reads
        /// renewed certificates without a restart. With --output they are written, too
        #[arg(long, value_name = "DIRECTORY", requires = "authority")]
        tls_secrets: Option<String>,
    },
    /// Print a file of the directory that --tls-secrets of an Envoy bootstrap names, as JSON
    EnvoySecret {
        /// `ca` for the file ca.json, `certificate` for certificate.json
        secret: Secret,
        #[command(flatten)]
        tls: TlsArgs,
    },
    /// Print the bootstrap of a gRPC client, for the file that GRPC_XDS_BOOTSTRAP names
    Grpc {
        #[command(flatten)]
        node: NodeArgs,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Secret {
    Ca,
    Certificate,
}

#[derive(Debug, clap::Args)]
struct TlsArgs {
    /// File with the certificate authorities of the control plane, in PEM format; without it the
    /// connection is plain text
    #[arg(long, value_name = "FILE", group = "authority")]
    tls_ca: Option<String>,
    /// Directory on this machine with ca.crt, tls.crt and tls.key, as `plimsoll certs` and
    /// cert-manager write them, instead of the three files
    #[arg(long, value_name = "DIRECTORY", group = "authority")]
    tls_directory: Option<PathBuf>,
    /// File with the client's certificate chain, in PEM format
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_ca",
        requires = "tls_private_key"
    )]
    tls_certificate: Option<String>,
    /// File with its private key, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_private_key: Option<String>,
}

#[derive(Debug, clap::Args)]
struct NodeArgs {
    /// Zone of the proxy (node.locality.zone) [default: PLIMSOLL_ZONE, or that of --zone-file]
    #[arg(long)]
    zone: Option<String>,
    /// File with the zone of the proxy, or with the labels of its pod: a volume of the downward API
    /// of Kubernetes
    #[arg(long, value_name = "FILE")]
    zone_file: Option<PathBuf>,
    /// Region of the proxy (node.locality.region)
    #[arg(long, default_value = "")]
    region: String,
    /// Part of the zone, for example a rack (node.locality.sub_zone)
    #[arg(long, default_value = "")]
    sub_zone: String,
    /// Fleet of the proxy (node.cluster); proxies with the same configuration form a fleet
    #[arg(long, default_value = "gateway")]
    fleet: String,
    /// Id of the proxy (node.id), unique within its fleet [default: PLIMSOLL_NODE_ID, or
    /// FLEET-ZONE-HOST, where HOST is the variable POD_NAME or the name of this machine]
    #[arg(long, visible_alias = "node-id")]
    id: Option<String>,
    /// Address of the control plane's xDS server; repeatable for an Envoy, with one address per
    /// replica
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:18000")]
    control: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll bootstrap envoy --region r1 --zone zone-a > envoy.json
  plimsoll bootstrap envoy --region r1 --zone zone-a --fleet gateway --id gateway-7 \\
      --control control.internal:18000 --admin-port 9901 > envoy.json
  plimsoll bootstrap grpc --region r1 --zone zone-b --fleet checkout > bootstrap.json
  GRPC_XDS_BOOTSTRAP=bootstrap.json ./checkout      # which dials xds:///orders
  plimsoll bootstrap envoy --region r1 --zone zone-a --tls-ca ca.crt \\
      --tls-certificate tls.crt --tls-private-key tls.key > envoy.json

  plimsoll bootstrap envoy --region r1 --zone zone-a --tls-directory certs/zone-a \\
      --output envoy.json                           # with what plimsoll certs has written

Exit codes: 0 success, 2 wrong usage, or a file that is missing, empty or cannot be written.";

pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let output = args.output.as_deref();
    let json = match args.kind {
        Kind::Envoy {
            node,
            delta,
            admin_port,
            local_cluster,
            module,
            module_admin_port,
            tls_server_name,
            tls_secrets,
        } => {
            let mut bootstrap = node.bootstrap()?;
            if let Some(tls) = &mut bootstrap.tls {
                tls.server_name = tls_server_name;
                tls.envoy_secrets = tls_secrets;
                if output.is_some() {
                    files::write_secrets(tls)?;
                }
            }
            bootstrap.envoy(&EnvoyOptions {
                delta,
                admin_port,
                local_cluster_name: local_cluster,
                module,
                module_admin_port,
            })
        }
        Kind::EnvoySecret { secret, tls } => {
            let tls = tls.files()?;
            let tls = tls.context("--tls-directory or --tls-ca is required")?;
            let (secret, missing) = match secret {
                Secret::Ca => (EnvoySecret::Ca, "--tls-ca is required"),
                Secret::Certificate => (
                    EnvoySecret::Certificate,
                    "--tls-directory, or --tls-certificate and --tls-private-key, are required",
                ),
            };
            tls.envoy_secret(secret).context(missing)?
        }
        Kind::Grpc { node } => {
            let bootstrap = node.bootstrap()?;
            if !bootstrap.replicas.is_empty() {
                return Err(anyhow!(
                    "--control: gRPC stays with the first server of a list; use one name for all \
                     replicas, such as that of a service"
                ));
            }
            bootstrap.grpc()
        }
    };
    match output {
        Some(path) => files::replace(path, &format!("{json:#}\n"))?,
        None => ignore_broken_pipe(writeln!(out, "{json:#}"))?,
    }
    Ok(Exit::Ok)
}

impl NodeArgs {
    fn bootstrap(self) -> anyhow::Result<Bootstrap> {
        let mut controls = self.control.iter().map(|control| address(control));
        let first = controls.next().context("--control is required")??;
        let replicas = controls.collect::<anyhow::Result<_>>()?;
        let places = ZonePlaces {
            flag: self.zone,
            file: self.zone_file,
        };
        let zone = places.find(own_zone::variable)?.with_context(|| {
            format!(
                "--zone is required, or {} in the environment",
                own_zone::ZONE
            )
        })?;
        let id = own_zone::node_id(self.id.as_ref(), own_zone::variable);
        Ok(Bootstrap {
            id: id.unwrap_or_else(|| format!("{}-{zone}-{}", self.fleet, host_name())),
            fleet: self.fleet,
            region: self.region,
            zone,
            sub_zone: self.sub_zone,
            control_host: first.0,
            control_port: first.1,
            replicas,
            tls: self.tls.files()?,
        })
    }
}

fn address(control: &str) -> anyhow::Result<(String, u16)> {
    let (host, port) = control
        .rsplit_once(':')
        .ok_or_else(|| anyhow!("--control: {control:?} has no port; write HOST:PORT"))?;
    let port = port
        .parse()
        .with_context(|| format!("--control: {port:?} is not a port number from 0 to 65535"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), port))
}

/// Returns what distinguishes the proxies of a zone: the name of the pod or of the machine.
fn host_name() -> String {
    let pod = std::env::var("POD_NAME").ok();
    pod.filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let system = rustix::system::uname();
        system.nodename().to_string_lossy().into_owned()
    })
}

impl TlsArgs {
    fn files(self) -> anyhow::Result<Option<BootstrapTls>> {
        if let Some(directory) = &self.tls_directory {
            return files::directory(directory).map(Some);
        }
        Ok(self.tls_ca.map(|ca| BootstrapTls {
            ca,
            certificate: self.tls_certificate.zip(self.tls_private_key),
            ..BootstrapTls::default()
        }))
    }
}
