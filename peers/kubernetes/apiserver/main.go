// Command apiserver is the API machinery of Kubernetes for tests: the stock apiextensions-apiserver (custom resources,
// their schemas and status) and, on the same generic registry, the built-in kinds that Plimsoll reads and writes. List,
// watch, bookmarks, compaction, optimistic locking and request limits are those of a kube-apiserver. What a
// kube-apiserver adds and this has not: validation and defaults of built-in kinds, RBAC, admission, controllers.
//
// It is built from Debian's packages by scripts/deps.sh. Flags are those of apiextensions-apiserver, and --token-file.
package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	noop "go.opentelemetry.io/otel/trace/noop"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	serveroptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	options := serveroptions.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	recommended := options.RecommendedOptions
	// These would ask another API server, which there is none.
	recommended.Authentication = nil
	recommended.Authorization = nil
	recommended.CoreAPI = nil
	recommended.Admission = nil
	recommended.Features.EnablePriorityAndFairness = false

	flags := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	options.AddFlags(flags)
	tokens := flags.String("token-file", "", "file with the accepted bearer tokens, one per line, read for every request")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if err := options.ServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := options.Complete(); err != nil {
		return err
	}
	config, err := configure(options, *tokens)
	if err != nil {
		return err
	}
	server, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	if err := installBuiltIn(server.GenericAPIServer, *recommended.Etcd); err != nil {
		return err
	}
	if err := serveGroups(server); err != nil {
		return err
	}
	return server.GenericAPIServer.PrepareRun().RunWithContext(ctx)
}

// configure does what the options of apiextensions-apiserver do, without clients of another API server.
func configure(options *serveroptions.CustomResourceDefinitionsServerOptions, tokens string) (*apiserver.Config, error) {
	recommended := options.RecommendedOptions
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	if err := recommended.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, loopback); err != nil {
		return nil, err
	}
	generic := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	if err := options.ServerRunOptions.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	if err := recommended.ApplyTo(generic); err != nil {
		return nil, err
	}
	resources := apiserver.DefaultAPIResourceConfigSource()
	if err := options.APIEnablement.ApplyTo(&generic.Config, resources, apiserver.Scheme); err != nil {
		return nil, err
	}
	generic.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	generic.Authentication.Authenticator = newAuthenticator(tokens)
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme, clientscheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	// The generated definitions are those of apiextensions only.
	generic.OpenAPIConfig.IgnorePrefixes = append(generic.OpenAPIConfig.IgnorePrefixes, builtInPrefixes...)
	generic.OpenAPIV3Config.IgnorePrefixes = append(generic.OpenAPIV3Config.IgnorePrefixes, builtInPrefixes...)
	getter := serveroptions.NewCRDRESTOptionsGetter(
		*recommended.Etcd, generic.ResourceTransformers, generic.StorageObjectCountTracker)
	return &apiserver.Config{
		GenericConfig: generic,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: getter,
			ServiceResolver:      noServices{},
			AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(
				nil, nil, generic.LoopbackClientConfig, noop.NewTracerProvider()),
		},
	}, nil
}

// noServices: conversion webhooks are not supported.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return nil, fmt.Errorf("no service %s/%s: webhooks are not supported", namespace, name)
}
