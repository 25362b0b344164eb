package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/go-amqp"
)

const tokenBytesMax = 16 << 10

// login says whether the node lets us in by the mechanism that the environment names.
func login(ctx context.Context, url string) {
	user, password, token := os.Getenv("LOGIN_USER"), os.Getenv("LOGIN_PASSWORD"), os.Getenv("LOGIN_TOKEN")
	mechanism := map[string]amqp.SASLType{
		"PLAIN":    amqp.SASLTypePlain(user, password),
		"EXTERNAL": amqp.SASLTypeExternal(user),
		"XOAUTH2":  amqp.SASLTypeXOAUTH2(user, token, tokenBytesMax),
	}[os.Getenv("LOGIN_MECHANISM")]
	options := &amqp.ConnOptions{SASLType: mechanism}
	if strings.HasPrefix(url, "amqps") {
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("LOGIN_CA"))))
		options.TLSConfig = &tls.Config{RootCAs: authorities, ServerName: "localhost"}
		if file := os.Getenv("LOGIN_CERT"); file != "" {
			options.TLSConfig.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(file, os.Getenv("LOGIN_KEY")))}
		}
	}
	connection, err := amqp.Dial(ctx, url, options)
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	fmt.Println("in")
	must(0, connection.Close())
}
