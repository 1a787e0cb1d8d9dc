package main

import (
	"context"
	"net/http"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"
)

// newAuthenticator accepts the bearer tokens of a file, which is read for every request so that tokens can be rotated and
// revoked; without a file it accepts everything.
func newAuthenticator(path string) authenticator.Request {
	accepted := &authenticator.Response{User: &user.DefaultInfo{Name: "test", Groups: []string{user.AllAuthenticated}}}
	if path == "" {
		return authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return accepted, true, nil
		})
	}
	return bearertoken.New(authenticator.TokenFunc(
		func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, false, err
			}
			for _, line := range strings.Fields(string(text)) {
				if line == token {
					return accepted, true, nil
				}
			}
			return nil, false, nil
		}))
}
