//! Decodes and validates xDS resources, once, where they are accepted or rejected. Without IO.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use plimsoll_core::units::FieldError;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::route::RouteConfiguration;
use plimsoll_xds::upstream::{ClusterEndpoints, UpstreamCluster};
use plimsoll_xds::wire::{self, ApiListener};

#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) content: Content,
    pub(crate) ignored: Arc<[String]>,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Listener(Arc<ApiListener>),
    /// A listener of a program with its own listeners, in the form of its [`ListenerCompiler`].
    Compiled(CompiledListener),
    Routes(Routes),
    Cluster(Arc<UpstreamCluster>),
    Endpoints(ClusterEndpoints),
}

#[derive(Clone, Debug)]
pub(crate) struct Routes {
    pub(crate) configuration: Arc<RouteConfiguration>,
    pub(crate) compiled: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Clone, Debug)]
pub(crate) struct CompiledListener {
    pub(crate) name: Arc<str>,
    pub(crate) compiled: Arc<dyn Any + Send + Sync>,
}

/// Compilers of the program, which replace or extend the decoders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compilers {
    pub(crate) routes: Option<RouteCompiler>,
    pub(crate) listeners: Option<ListenerCompiler>,
}

impl From<Arc<RouteConfiguration>> for Routes {
    fn from(configuration: Arc<RouteConfiguration>) -> Self {
        Self {
            configuration,
            compiled: None,
        }
    }
}

/// Compiles route configurations into the program's own form, once per update;
/// [`Client::compiled_routes`](crate::Client::compiled_routes) returns the result. A configuration
/// that it refuses is rejected (NACK) with the path of the field, and the previous one stays in
/// use.
#[derive(Clone)]
pub struct RouteCompiler(Arc<Compile>);

type Compile =
    dyn Fn(Arc<RouteConfiguration>) -> Result<Arc<dyn Any + Send + Sync>, FieldError> + Send + Sync;

impl RouteCompiler {
    /// Calls `compile` with every route configuration that is received.
    pub fn new<T: Any + Send + Sync>(
        compile: impl Fn(Arc<RouteConfiguration>) -> Result<T, FieldError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |routes| Ok(Arc::new(compile(routes)?))))
    }
}

/// Compiles listeners (LDS) into the program's own form, for programs that accept connections;
/// [`Client::compiled_listeners`](crate::Client::compiled_listeners) returns the results. A
/// listener that it refuses is rejected (NACK) with its name and the path of the field, and the
/// previous one stays in use.
#[derive(Clone)]
pub struct ListenerCompiler(Arc<CompileListener>);

type CompileListener =
    dyn Fn(&[u8]) -> Result<Arc<dyn Any + Send + Sync>, FieldError> + Send + Sync;

impl ListenerCompiler {
    /// Calls `compile` with the bytes of every `Listener` message that is received.
    pub fn new<T: Any + Send + Sync>(
        compile: impl Fn(&[u8]) -> Result<T, FieldError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |bytes| Ok(Arc::new(compile(bytes)?))))
    }
}

impl fmt::Debug for ListenerCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerCompiler")
    }
}

impl fmt::Debug for RouteCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteCompiler")
    }
}

impl Content {
    fn name(&self) -> &str {
        match self {
            Self::Listener(listener) => &listener.name,
            Self::Compiled(listener) => &listener.name,
            Self::Routes(routes) => &routes.configuration.name,
            Self::Cluster(cluster) => cluster.config.name(),
            Self::Endpoints(endpoints) => endpoints.assignment.cluster_name(),
        }
    }
}

/// Decodes a resource. The NACK for the server has the error and the name of the resource.
pub(crate) fn decode(
    type_url: &str,
    name: &str,
    body: &[u8],
    compilers: &Compilers,
) -> Result<Decoded, DecodeError> {
    let mut content = match (type_url, &compilers.listeners) {
        (LISTENER, Some(compiler)) => Content::Compiled(CompiledListener {
            name: wire::resource_name(type_url, body)
                .unwrap_or_default()
                .into(),
            compiled: (compiler.0)(body)?,
        }),
        (LISTENER, None) => Content::Listener(Arc::new(wire::decode_listener(body)?)),
        (ROUTE_CONFIGURATION, _) => {
            let routes = wire::decode_route_configuration(body)?;
            Content::Routes(Arc::new(routes).into())
        }
        (CLUSTER, _) => Content::Cluster(Arc::new(wire::decode_upstream_cluster(body)?)),
        (CLUSTER_LOAD_ASSIGNMENT, _) => Content::Endpoints(wire::decode_endpoints(body)?),
        _ => {
            let reason = format!("not subscribed to resources of type {type_url}");
            return Err(DecodeError::new("", reason));
        }
    };
    // A resource that is stored under a name other than its own would replace another resource.
    let inner = content.name();
    if inner != name {
        let reason = format!("is {inner:?} inside the resource");
        return Err(DecodeError::new("name", reason));
    }
    if let (Content::Routes(routes), Some(compiler)) = (&mut content, &compilers.routes) {
        let compiled = (compiler.0)(Arc::clone(&routes.configuration))?;
        routes.compiled = Some(compiled);
    }
    Ok(Decoded {
        content,
        ignored: wire::ignored_fields(type_url, body).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_name_the_field() {
        let rejection = |type_url, name, body: &[u8]| {
            let error = decode(type_url, name, body, &Compilers::default()).unwrap_err();
            error.to_string()
        };
        let error = rejection(CLUSTER, "c1", b"");
        assert!(error.starts_with("name: "), "{error}");
        let body = wire::encode_api_listener("l", "r");
        assert!(decode(LISTENER, "l", &body, &Compilers::default()).is_ok());
        let error = rejection(LISTENER, "other", &body);
        assert_eq!(error, "name: is \"l\" inside the resource");
        let error = rejection("type.googleapis.com/x.Y", "c1", b"");
        assert!(error.contains("not subscribed"), "{error}");
        rejection(LISTENER, "l", b"\xff");
    }

    #[test]
    fn routes_carry_the_result_of_the_compiler() {
        // `name: r`
        let body = *b"\x0a\x01r";
        let compiler = RouteCompiler::new(|routes| Ok(routes.name.len()));
        let with = |compiler| Compilers {
            routes: Some(compiler),
            listeners: None,
        };
        let decoded = decode(ROUTE_CONFIGURATION, "r", &body, &with(compiler)).unwrap();
        let Content::Routes(routes) = decoded.content else {
            panic!("{decoded:?}")
        };
        let compiled = routes.compiled.unwrap().downcast::<usize>().unwrap();
        assert_eq!(*compiled, 1);
        let strict =
            RouteCompiler::new(|_| Err::<(), _>(FieldError::new("virtual_hosts", "is empty")));
        let error = decode(ROUTE_CONFIGURATION, "r", &body, &with(strict)).unwrap_err();
        assert_eq!(error.to_string(), "virtual_hosts: is empty");
    }

    #[test]
    fn listeners_of_a_program_are_compiled_by_it() {
        let body = wire::encode_api_listener("l", "r");
        let with = |compiler| Compilers {
            routes: None,
            listeners: Some(compiler),
        };
        let length = with(ListenerCompiler::new(|bytes| Ok(bytes.len())));
        let decoded = decode(LISTENER, "l", &body, &length).unwrap();
        let Content::Compiled(listener) = decoded.content else {
            panic!("{decoded:?}")
        };
        let compiled = listener.compiled.downcast::<usize>().unwrap();
        assert_eq!(*compiled, body.len());
        let error = decode(LISTENER, "other", &body, &length).unwrap_err();
        assert_eq!(error.to_string(), "name: is \"l\" inside the resource");
        let strict =
            ListenerCompiler::new(|_| Err::<(), _>(FieldError::new("address", "is in use")));
        let error = decode(LISTENER, "l", &body, &with(strict)).unwrap_err();
        assert_eq!(error.to_string(), "address: is in use");
    }
}
