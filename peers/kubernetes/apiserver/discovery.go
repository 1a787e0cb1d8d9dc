package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// serveGroups serves the list of API groups at /apis, which kubectl starts with. In a cluster the aggregator does so.
func serveGroups(server *apiserver.CustomResourceDefinitions) error {
	groups := server.GenericAPIServer.DiscoveryGroupManager
	server.GenericAPIServer.Handler.GoRestfulContainer.Add(groups.WebService())
	add := func(object any) {
		definition, ok := object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return
		}
		group := metav1.APIGroup{Name: definition.Spec.Group}
		for _, version := range definition.Spec.Versions {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
				GroupVersion: definition.Spec.Group + "/" + version.Name,
				Version:      version.Name,
			})
		}
		group.PreferredVersion = group.Versions[0]
		groups.AddGroup(group)
	}
	informer := server.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
	})
	return err
}
