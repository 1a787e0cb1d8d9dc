package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/names"
)

// kind is a built-in kind that this server has.
type kind struct {
	group      string
	resource   string
	singular   string
	namespaced bool
	object     func() runtime.Object
	list       func() runtime.Object
}

var kinds = []kind{
	{"", "services", "service", true,
		func() runtime.Object { return &corev1.Service{} }, func() runtime.Object { return &corev1.ServiceList{} }},
	{"", "nodes", "node", false,
		func() runtime.Object { return &corev1.Node{} }, func() runtime.Object { return &corev1.NodeList{} }},
	{"", "events", "event", true,
		func() runtime.Object { return &corev1.Event{} }, func() runtime.Object { return &corev1.EventList{} }},
	{"discovery.k8s.io", "endpointslices", "endpointslice", true,
		func() runtime.Object { return &discoveryv1.EndpointSlice{} },
		func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
	{"events.k8s.io", "events", "event", true,
		func() runtime.Object { return &eventsv1.Event{} }, func() runtime.Object { return &eventsv1.EventList{} }},
}

// builtInPrefixes are the paths of the kinds above.
var builtInPrefixes = []string{"/api/v1", "/apis/discovery.k8s.io", "/apis/events.k8s.io"}

// newScheme registers the versioned types as internal ones as well: the hand-written internal types are part of
// Kubernetes, not of its libraries, and equal the versioned ones in the fields that matter here.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	for _, one := range kinds {
		internal := schema.GroupVersion{Group: one.group, Version: runtime.APIVersionInternal}
		scheme.AddKnownTypes(internal, one.object(), one.list())
	}
	version := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, version)
	scheme.AddUnversionedTypes(version, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{},
		&metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme, nil
}

func installBuiltIn(server *genericapiserver.GenericAPIServer, etcd options.EtcdOptions) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	codecs := serializer.NewCodecFactory(scheme)
	etcd.StorageConfig.Prefix = "/registry/built-in"
	etcd.StorageConfig.Codec = codecs.LegacyCodec(
		corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion)
	getter := etcd.CreateRESTOptionsGetter(&options.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, nil)
	groups := map[string]*genericapiserver.APIGroupInfo{}
	for _, one := range kinds {
		store, err := newStore(one, scheme, getter)
		if err != nil {
			return err
		}
		group := groups[one.group]
		if group == nil {
			info := genericapiserver.NewDefaultAPIGroupInfo(one.group, scheme, runtime.NewParameterCodec(scheme), codecs)
			group = &info
			group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{}
			groups[one.group] = group
		}
		group.VersionedResourcesStorageMap["v1"][one.resource] = store
	}
	for name, group := range groups {
		if name == "" {
			err = server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, group)
		} else {
			err = server.InstallAPIGroup(group)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newStore(one kind, scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*registry.Store, error) {
	strategy := strategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator, namespaced: one.namespaced}
	resource := schema.GroupResource{Group: one.group, Resource: one.resource}
	store := &registry.Store{
		NewFunc:                   one.object,
		NewListFunc:               one.list,
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: schema.GroupResource{Group: one.group, Resource: one.singular},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(resource),
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter})
}

// strategy stores objects as they come.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

func (s strategy) NamespaceScoped() bool                                               { return s.namespaced }
func (strategy) PrepareForCreate(context.Context, runtime.Object)                      {}
func (strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object)      {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList              { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string             { return nil }
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string      { return nil }
func (strategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList { return nil }
func (strategy) Canonicalize(runtime.Object)                                           {}
func (strategy) AllowCreateOnUpdate() bool                                             { return false }
func (strategy) AllowUnconditionalUpdate() bool                                        { return true }
