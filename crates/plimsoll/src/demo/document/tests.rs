//! The page of a scene without sockets.
